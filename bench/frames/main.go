// Command frames counts the tokens (o200k_base) of what a model is shown for
// one notice, and for many.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tiktoken-go/tokenizer"

	"github.com/ossicle/ossicle/notice"
)

func main() {
	limit := flag.Int("limit", 60, "tokens that a notice of one line may cost")
	flag.Parse()
	if err := run(*limit); err != nil {
		fmt.Fprintln(os.Stderr, "frames:", err)
		os.Exit(1)
	}
}

func run(limit int) error {
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		return err
	}
	one := func(name, uri, text string) notice.Notice {
		return notice.Notice{Source: notice.SourceWatch, Title: name, Text: text, Meta: map[string]string{notice.MetaURI: uri}, CreatedAt: time.Now()}
	}
	fmt.Printf("%8s  %s\n", "tokens", "message")
	for _, c := range []struct {
		name    string
		notices []notice.Notice
		bounded bool
	}{
		{"one line, memo", []notice.Notice{one("notes", "memo://notes", "ADDED todo")}, true},
		{"one line, a long URI", []notice.Notice{one("cm", "kcp-events://watch/root:app/configmaps?namespace=*", "added default/final-check")}, false},
		{"twenty lines", []notice.Notice{one("notes", "memo://notes", strings.TrimSuffix(strings.Repeat("MODIFIED todo (tea→coffee)\n", 20), "\n"))}, false},
		{"a hundred notices", many(one), false},
	} {
		n, err := codec.Count(notice.Frame(c.notices...))
		if err != nil {
			return err
		}
		fmt.Printf("%8d  %s\n", n, c.name)
		if c.bounded && n > limit {
			return fmt.Errorf("%s costs %d tokens, over the limit of %d", c.name, n, limit)
		}
	}
	return nil
}

func many(one func(name, uri, text string) notice.Notice) []notice.Notice {
	var all []notice.Notice
	for i := range 100 {
		all = append(all, one(fmt.Sprintf("w%d", i%5), "memo://notes", "MODIFIED todo"))
	}
	return all
}
