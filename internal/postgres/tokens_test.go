package postgres

import (
	"testing"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/access/accesstest"
)

func TestTokens(t *testing.T) { // F-22
	t.Parallel()
	again := reused(t)
	accesstest.RunStore(t, func(t *testing.T) func() access.Store {
		dsn := again(t)
		return func() access.Store { return openAt(t, dsn, &Options{Connections: 2}).Tokens() }
	})
}
