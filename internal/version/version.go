// Package version tells which build this is.
package version

import "runtime/debug"

// Name is the program's name, as peers see it.
const Name = "ossicle"

// number is set by the release build with -ldflags "-X …/version.number=1.2.3".
var number = ""

// Number returns the version: the release number, else the module version,
// else "dev" with the commit when the build recorded one.
func Number() string {
	if number != "" {
		return number
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "dev-" + s.Value[:12]
		}
	}
	return "dev"
}
