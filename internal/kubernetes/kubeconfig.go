package kubernetes

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

// kubeconfig is the part of the file that we understand. What would change who we
// are, and is not understood, is an error.
type kubeconfig struct {
	CurrentContext string         `yaml:"current-context"`
	Clusters       []namedCluster `yaml:"clusters"`
	Users          []namedUser    `yaml:"users"`
	Contexts       []namedContext `yaml:"contexts"`
}

type namedCluster struct {
	Name    string      `yaml:"name"`
	Cluster kubeCluster `yaml:"cluster"`
}

type kubeCluster struct {
	Server     string `yaml:"server"`
	CA         string `yaml:"certificate-authority"`
	CAData     string `yaml:"certificate-authority-data"`
	ServerName string `yaml:"tls-server-name"`
	Insecure   bool   `yaml:"insecure-skip-tls-verify"`
	ProxyURL   string `yaml:"proxy-url"`
}

type namedUser struct {
	Name string   `yaml:"name"`
	User kubeUser `yaml:"user"`
}

type kubeUser struct {
	Token        string      `yaml:"token"`
	TokenFile    string      `yaml:"tokenFile"`
	Cert         string      `yaml:"client-certificate"`
	CertData     string      `yaml:"client-certificate-data"`
	Key          string      `yaml:"client-key"`
	KeyData      string      `yaml:"client-key-data"`
	Exec         *execPlugin `yaml:"exec"`
	Username     string      `yaml:"username"`
	As           string      `yaml:"as"`
	AsUID        string      `yaml:"as-uid"`
	AsGroups     []string    `yaml:"as-groups"`
	AuthProvider any         `yaml:"auth-provider"`
}

type namedContext struct {
	Name    string `yaml:"name"`
	Context struct {
		Cluster   string `yaml:"cluster"`
		User      string `yaml:"user"`
		Namespace string `yaml:"namespace"`
	} `yaml:"context"`
}

// fileAccess is that of a kubeconfig; an empty context is the file's current one.
func fileAccess(path, context string) (*access, error) {
	b, err := readFile(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	a, err := parseKubeconfig(b, filepath.Dir(path), context)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	return a, nil
}

// parseKubeconfig reads a kubeconfig whose relative paths are below dir. Errors
// repeat no part of the file but names: there are secrets in it.
func parseKubeconfig(text []byte, dir, context string) (*access, error) {
	var file kubeconfig
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, errors.New("it is no kubeconfig in YAML")
	}
	if context == "" {
		context = file.CurrentContext
	}
	for _, c := range file.Contexts {
		if c.Name != context {
			continue
		}
		cluster, user, err := file.find(c.Context.Cluster, c.Context.User)
		if err != nil {
			return nil, err
		}
		a := &access{namespace: c.Context.Namespace}
		if err := errors.Join(a.useCluster(cluster, dir), a.useUser(user, dir)); err != nil {
			return nil, err
		}
		return a, nil
	}
	return nil, fmt.Errorf("it has no context %q", context)
}

func (k kubeconfig) find(cluster, user string) (kubeCluster, kubeUser, error) {
	for _, c := range k.Clusters {
		if c.Name != cluster {
			continue
		}
		if user == "" {
			return c.Cluster, kubeUser{}, nil
		}
		for _, u := range k.Users {
			if u.Name == user {
				return c.Cluster, u.User, nil
			}
		}
		return kubeCluster{}, kubeUser{}, fmt.Errorf("it has no user %q", user)
	}
	return kubeCluster{}, kubeUser{}, fmt.Errorf("it has no cluster %q", cluster)
}

func (a *access) useCluster(c kubeCluster, dir string) error {
	base, err := url.Parse(c.Server)
	if err != nil {
		return errors.New("the address of the API server is no URL")
	}
	a.base = base
	if err := a.check(); err != nil {
		return err
	}
	ca, err := inlineOrFile(c.CAData, c.CA, dir)
	if err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	a.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != nil {
		if a.tls, err = trust(ca); err != nil {
			return err
		}
	}
	if c.Insecure && ca != nil {
		return errors.New("insecure-skip-tls-verify and a certificate authority exclude each other")
	}
	a.tls.InsecureSkipVerify, a.tls.ServerName = c.Insecure, c.ServerName // the operator's own word
	if c.ProxyURL != "" {
		if a.proxy, err = url.Parse(c.ProxyURL); err != nil || a.proxy.Host == "" {
			return errors.New("proxy-url is no URL")
		}
	}
	return nil
}

func (a *access) useUser(u kubeUser, dir string) error {
	switch {
	case u.As != "" || u.AsUID != "" || len(u.AsGroups) > 0:
		return errors.New("acting as somebody else (as, as-groups) is not supported")
	case u.AuthProvider != nil:
		return errors.New("auth-provider is not supported; use exec")
	case u.Username != "":
		return errors.New("username and password are not supported; use a token or a certificate")
	}
	cert, err := inlineOrFile(u.CertData, u.Cert, dir)
	if err != nil {
		return fmt.Errorf("client certificate: %w", err)
	}
	key, err := inlineOrFile(u.KeyData, u.Key, dir)
	if err != nil {
		return fmt.Errorf("client key: %w", err)
	}
	if cert != nil || key != nil {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return errors.New("client certificate and key are no pair in PEM")
		}
		a.tls.Certificates = []tls.Certificate{pair}
	}
	switch {
	case u.Exec != nil:
		p, err := newPlugin(*u.Exec, dir)
		if err != nil {
			return err
		}
		a.bearer, a.forget = p.bearer, p.forget
	case u.TokenFile != "":
		a.bearer = bearerFile(below(dir, u.TokenFile))
	case u.Token != "":
		if !validBearer(u.Token) {
			return errors.New("the token cannot stand in a header")
		}
		a.bearer = func(context.Context) (string, error) { return u.Token, nil }
	}
	return nil
}

// inlineOrFile is the content of a field, or of the file that its twin names; nil
// if there is neither.
func inlineOrFile(inline, file, dir string) ([]byte, error) {
	switch {
	case inline != "":
		b, err := base64.StdEncoding.DecodeString(inline)
		if err != nil {
			return nil, errors.New("the data is no base64")
		}
		return b, nil
	case file != "":
		return readFile(below(dir, file), maxFile)
	}
	return nil, nil
}

func below(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
