package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// jsonNumber is what JSON calls a number; YAML knows more forms.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// toJSON renders a YAML node as JSON in the order of the file, so that one
// parser reads the servers wherever they are written down.
func toJSON(n *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	if err := writeJSON(&b, n, 0); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func writeJSON(b *bytes.Buffer, n *yaml.Node, depth int) error {
	if depth > 32 {
		return fmt.Errorf("line %d: nested more than 32 deep", n.Line)
	}
	switch n.Kind {
	case yaml.MappingNode:
		return writeMapping(b, n, depth)
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, item, depth+1); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case yaml.ScalarNode:
		return writeScalar(b, n)
	default:
		return fmt.Errorf("line %d: aliases are not supported here", n.Line)
	}
}

func writeMapping(b *bytes.Buffer, n *yaml.Node, depth int) error {
	b.WriteByte('{')
	for i := 0; i+1 < len(n.Content); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(n.Content[i].Value)
		if err != nil {
			return err
		}
		b.Write(key)
		b.WriteByte(':')
		if err := writeJSON(b, n.Content[i+1], depth+1); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func writeScalar(b *bytes.Buffer, n *yaml.Node) error {
	switch tag := n.ShortTag(); {
	case tag == "!!null":
		b.WriteString("null")
	case tag == "!!bool":
		var v bool
		if err := n.Decode(&v); err != nil {
			return err
		}
		fmt.Fprintf(b, "%t", v)
	case (tag == "!!int" || tag == "!!float") && jsonNumber.MatchString(n.Value):
		b.WriteString(n.Value)
	default:
		v, err := json.Marshal(n.Value)
		if err != nil {
			return err
		}
		b.Write(v)
	}
	return nil
}
