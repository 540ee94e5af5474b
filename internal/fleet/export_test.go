package fleet

import "github.com/ossicle/ossicle/internal/gateway"

// Dir is the directory of the process.
func (f *Fleet) Dir() string { return f.dir }

// Socket is where the gateway takes workers.
func (f *Fleet) Socket() string { return f.socket }

// Keys sign the tokens of workers.
func (f *Fleet) Keys() *gateway.Keyring { return f.tokens }
