package attach_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ossicle/ossicle/attach"
)

func unmarshal(b []byte, v any) error { return json.Unmarshal(b, v) }

func Example() {
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	var report attach.Report
	report, _ = report.Begin(attach.Start{SessionID: "s1", ExecutionID: "e1", AttemptID: "a1", StartedAt: noon})

	see := func(server string, kind attach.Kind, after time.Duration, detail attach.Detail) {
		report, _ = attach.Reduce(report, attach.Evidence{
			AttemptID: "a1", ExecutionID: "e1", Server: server, Kind: kind, OccurredAt: noon.Add(after), Detail: detail,
		})
	}
	see("github", attach.ServerDelivered, time.Second, attach.Detail{Transport: attach.HTTP, Target: "https://mcp.example/v1?key=secret"})
	see("github", attach.ToolsListObserved, 2*time.Second, attach.Detail{ToolCount: new(7)})
	see("files", attach.ServerFiltered, time.Second, attach.Detail{Transport: attach.SSE, Reason: attach.ReasonUnsupportedAdvertised})
	see("mail", attach.ServerDelivered, time.Second, attach.Detail{Transport: attach.Stdio, Target: "/opt/mail/server"})

	for _, s := range report.CurrentAttempt().Servers {
		fmt.Printf("%s %s: %s %q\n", s.Name, s.Target, s.Status.Label(), s.Reason.Text())
	}
	// Output:
	// files : Filtered "the agent says that it does not take this transport"
	// github https://mcp.example: Active ""
	// mail server: Delivered · connection unverified ""
}

func ExampleSanitizer_Summary() {
	s := attach.NewSanitizer("hunter2!")
	fmt.Println(s.Summary(`Post "https://mcp.example/v1?key=x": login as hunter2! failed`))
	// Output: Post "https://mcp.example": login as [redacted] failed
}

func ExampleReduce_stale() {
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	start := attach.Start{SessionID: "s1", ExecutionID: "e1", AttemptID: "a1", StartedAt: noon}
	report, _ := attach.Report{}.Begin(start)
	start.AttemptID, start.StartedAt = "a2", noon.Add(time.Minute)
	report, _ = report.Begin(start) // a reset: nothing of a1 counts any more
	_, err := attach.Reduce(report, attach.Evidence{
		AttemptID: "a1", ExecutionID: "e1", Server: "github", Kind: attach.ToolsListObserved, OccurredAt: noon.Add(2 * time.Minute),
	})
	fmt.Println(err)
	// Output: take evidence "tools_list_observed": the attempt is not the current one
}
