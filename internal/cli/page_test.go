package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandPage renders the reference of all commands.
func commandPage(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Commands\n\nThis page is made from the commands themselves; `ossicle COMMAND --help` says the same.\n")
	b.WriteString("\n## Everywhere\n\n")
	flags(&b, root.PersistentFlags())
	for _, cmd := range root.Commands() {
		section(&b, cmd)
	}
	return b.String()
}

func section(b *strings.Builder, cmd *cobra.Command) {
	if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
		return
	}
	if len(cmd.Commands()) > 0 {
		for _, sub := range cmd.Commands() {
			section(b, sub)
		}
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", cmd.CommandPath())
	if cmd.Long != "" {
		fmt.Fprintf(b, "%s\n\n", cmd.Long)
	} else {
		fmt.Fprintf(b, "%s.\n\n", cmd.Short)
	}
	fmt.Fprintf(b, "    %s\n\n", strings.TrimSuffix(cmd.UseLine(), " [flags]"))
	flags(b, cmd.LocalNonPersistentFlags())
	if cmd.Example != "" {
		fmt.Fprintf(b, "\n```\n%s\n```\n", strings.TrimSpace(strings.ReplaceAll("\n"+cmd.Example, "\n  ", "\n")))
	}
}

func flags(b *strings.Builder, set *pflag.FlagSet) {
	if !set.HasAvailableFlags() {
		return
	}
	b.WriteString("| flag | is |\n|---|---|\n")
	set.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		kind, usage := pflag.UnquoteUsage(f)
		if kind != "" {
			name += " " + kind
		}
		def := ""
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" && f.DefValue != "0s" {
			def = " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(b, "| %s | %s%s |\n", name, strings.ReplaceAll(usage, "|", "\\|"), def)
	})
}
