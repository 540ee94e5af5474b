//go:build !linux

package fleet

import (
	"context"
	"fmt"
	"os"

	"github.com/ossicle/ossicle/internal/config"
)

func (*Fleet) newLocal(context.Context, *config.Sandbox) (Driver, error) {
	return nil, fmt.Errorf("%w: sandboxes of this machine need Linux", ErrNoSandbox)
}

// ours is for what only Linux leaves behind.
func ours(os.FileInfo) bool { return false }
