// Digests counts the tokens of digests with the encodings of real models: of
// 4,000 events of one type, whose data is of many kinds.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/tiktoken-go/tokenizer"

	"github.com/ossicle/ossicle/feed"
)

const (
	events = 4000
	limit  = 120 // tokens (specification F-29)
)

// data are of what events are made of, %d is their number.
var data = []struct{ name, form string }{
	{"a row", `{"id":%d,"severity":"SEV2","status":"mitigating","service":"checkout-api"}`},
	{"numbers", `{"n":%d,"ratio":0.0031415926,"bytes":1915883588174806058,"values":[1,22,333,4444,55555,666666]}`},
	{"identifiers", `{"id":"5f2c9e7a-8d1b-4c63-9f0e-2b7a6c1d%04d","trace":"4bf92f3577b34da6a3ce929d0e0e4736","sha":"9b74c9897bac770ffc029102a200c5de"}`},
	{"long text", `{"message":"request %d failed: upstream connect error or disconnect/reset before headers, reset reason: connection timeout; the request was retried three times and then given up, see the log of the proxy"}`},
	{"German", `{"meldung":"Vorgang %d: Die Überprüfung der Rückmeldung ist außerplanmäßig fehlgeschlagen, bitte prüfen Sie die Zugriffsrechte"}`},
	{"Japanese", `{"メッセージ":"要求 %d は失敗しました。接続がタイムアウトしたため、再試行されましたが、成功しませんでした"}`},
	{"punctuation", `{"q":"<<<%d>>> {{[[((??!!;;::..,,--__==++**//\\||~~^^&&%%%%$$##@@))]]}}"}`},
	{"emoji", `{"mood":"%d 🦴👂🦻🔔🔕📣📢🎧🎙🎚🎛📻📡🛰🪃🧭"}`},
}

func main() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer func() { _ = out.Flush() }()
	encodings := []tokenizer.Encoding{tokenizer.Cl100kBase, tokenizer.O200kBase}
	fmt.Fprintln(out, "4,000 events of one type\tcl100k\to200k\tcount true")
	over := false
	for _, d := range data {
		digest := feed.NewDigest(nil)
		for i := range events {
			digest.Add(feed.Event{Type: "incident.updated", Data: json.RawMessage(fmt.Sprintf(d.form, i))})
		}
		block := digest.Render()
		fmt.Fprintf(out, "%s", d.name)
		for _, e := range encodings {
			codec, err := tokenizer.Get(e)
			if err != nil {
				fmt.Fprintln(os.Stderr, "digests:", err)
				os.Exit(1)
			}
			ids, _, err := codec.Encode(block)
			if err != nil {
				fmt.Fprintln(os.Stderr, "digests:", err)
				os.Exit(1)
			}
			over = over || len(ids) > limit
			fmt.Fprintf(out, "\t%d", len(ids))
		}
		fmt.Fprintf(out, "\t%v\n", strings.Contains(block, "4000 x incident.updated"))
	}
	if over {
		_ = out.Flush()
		fmt.Fprintf(os.Stderr, "digests: over the %d tokens that a digest may have\n", limit)
		os.Exit(1)
	}
}
