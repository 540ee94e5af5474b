package agent

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ossicle/ossicle/internal/python"
)

// result writes what the model sees of a run: the prints, then the value of the
// last expression; for an exception its type, message and line (N-5).
func (c *CodeMode) result(res python.Result, err error, lost []string) ToolResult {
	out := ToolResult{Text: res.Output}
	if res.OutputCut {
		out.Text += "\n[printed text was cut]\n"
	}
	if err == nil && !res.None {
		out.Text = lines(out.Text, valueText(res))
	}
	out.Text = c.bounded(out.Text)
	if err != nil {
		out.IsError = true
		out.Text = lines(out.Text, errorText(err))
	}
	if len(lost) > 0 {
		out.Text = lines(out.Text, "[the tools have changed; variables that could not be kept: "+strings.Join(lost, ", ")+"]")
	}
	if strings.TrimSpace(out.Text) == "" {
		out.Text = "(no output)"
	}
	return out
}

// valueText is a string itself, JSON where the value has that shape, and str()
// for the rest.
func valueText(res python.Result) string {
	if len(res.Value) == 0 || res.Value[0] == '"' {
		return res.Text
	}
	return string(res.Value)
}

func lines(a, b string) string {
	if a == "" || strings.HasSuffix(a, "\n") {
		return a + b
	}
	return a + "\n" + b
}

// bounded cuts a result and says how much was cut, and what to do.
func (c *CodeMode) bounded(text string) string {
	if len(text) <= c.opts.ResultSize {
		return text
	}
	shown := cut(text, c.opts.ResultSize)
	return fmt.Sprintf("%s\n[cut: %d of %d bytes are shown; print only what you need]", shown, len(shown), len(text))
}

func errorText(err error) string {
	var raised *python.Error
	var limit *python.LimitError
	switch {
	case errors.As(err, &raised):
		text := cut(raised.Error(), maxErrorText)
		if line := strings.TrimSpace(raised.SourceLine); line != "" {
			text += "\n  " + cut(line, 200)
		}
		return text
	case errors.As(err, &limit):
		text := "LimitError: " + limit.Text
		switch limit.Limit {
		case python.LimitTime:
			text += "; do less in one program"
		case python.LimitMemory:
			text += "; keep less in variables"
		}
		return text + ". The variables are as they were before this program."
	}
	return "The program could not be run: " + cut(err.Error(), maxErrorText)
}
