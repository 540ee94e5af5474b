package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/ossicle/ossicle/listen"
)

// The smallest files of their kinds: one red pixel, and silence.
const (
	pixelPNG   = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	silenceWAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
)

func decode(data string) []byte {
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		panic(err) // a constant of this file
	}
	return b
}

// source has the resources of the scenarios. They never change.
type source struct{}

const watched = "test://watched-resource"

// Owns implements listen.Source.
func (source) Owns(uri string) bool { return strings.HasPrefix(uri, "test:") }

// List implements listen.Source.
func (source) List(context.Context) (listen.Listing, error) {
	return listen.Listing{
		Resources: []listen.Resource{
			{URI: "test://static-text", Name: "Static text", Description: "Text that never changes", MIMEType: "text/plain"},
			{URI: "test://static-binary", Name: "Static binary", Description: "An image that never changes", MIMEType: "image/png"},
			{URI: watched, Name: "Watched", Description: "A resource to subscribe to", MIMEType: "text/plain"},
		},
		Templates: []listen.Template{
			{URITemplate: "test://template/{id}/data", Name: "Template", Description: "Data by id", MIMEType: "application/json"},
		},
	}, nil
}

// Read implements listen.Source.
func (source) Read(_ context.Context, uri string, _ listen.ReadOptions) ([]listen.Contents, error) {
	c := listen.Contents{URI: uri, MIMEType: "text/plain"}
	id, ok := strings.CutPrefix(uri, "test://template/")
	id, whole := strings.CutSuffix(id, "/data")
	switch {
	case uri == "test://static-text":
		c.Text = "This text never changes."
	case uri == watched:
		c.Text = "This text could change."
	case uri == "test://static-binary":
		c.MIMEType, c.Blob = "image/png", decode(pixelPNG)
	case ok && whole && id != "" && !strings.Contains(id, "/"):
		c.MIMEType, c.Text = "application/json", fmt.Sprintf(`{"id":%q,"templateTest":true,"data":%q}`, id, "Data for "+id)
	default:
		return nil, &listen.NotFoundError{URI: uri}
	}
	return []listen.Contents{c}, nil
}

// Watch implements listen.Source.
func (s source) Watch(ctx context.Context, uri string, _ func()) (func(), error) {
	if _, err := s.Read(ctx, uri, listen.ReadOptions{}); err != nil {
		return nil, err
	}
	return func() {}, nil
}
