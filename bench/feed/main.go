//go:build linux

// Command feed compares the event feed with Mercure and Centrifugo, side by side
// in one run: each is a process of its own, and one load client drives them all.
// What counts are the ratios.
//
// The load client shares the machine with the server. It has no goroutine for a
// connection; a latency is the time between the stamp in an event, made right
// before it is published, and its arrival at a subscriber.
//
// A peer that cannot be built, because the module proxy does not serve it, is
// left out, and the report says so.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// sizes are those of a comparison. The defaults are the full size.
type sizes struct {
	subscribers int
	payload     int // bytes of an event
	publishers  int
	paced       int // events
	rate        float64
	burst       int // events
	bursts      int
	others      int // subscribers beside one that never reads
	flood       int // events that it does not read
	history     int // events
	missed      int // of them
	recent      int // missed by one who was away for less
	rounds      int
	settle      time.Duration // before memory is read
}

func main() {
	z := sizes{}
	flag.IntVar(&z.subscribers, "n", 10_000, "subscribers")
	flag.IntVar(&z.payload, "size", 200, "bytes of an event")
	flag.IntVar(&z.publishers, "publishers", 16, "publishers of a burst")
	flag.IntVar(&z.paced, "paced", 20, "events of the paced delivery")
	flag.Float64Var(&z.rate, "rate", 0.5, "events each second of the paced delivery")
	flag.IntVar(&z.burst, "burst", 30, "events of a burst")
	flag.IntVar(&z.bursts, "bursts", 5, "bursts, one after the other")
	flag.IntVar(&z.others, "others", 19, "subscribers beside one that never reads")
	flag.IntVar(&z.flood, "flood", 6000, "events that it does not read")
	flag.IntVar(&z.history, "history", 5200, "events before a resume")
	flag.IntVar(&z.missed, "missed", 5000, "events missed by one who resumes")
	flag.IntVar(&z.recent, "recent", 400, "events missed by one who was away for less")
	flag.IntVar(&z.rounds, "rounds", 20, "resumes")
	flag.DurationVar(&z.settle, "settle", 3*time.Second, "wait before memory is read")
	only := flag.String("only", "", "products, separated by commas (default: all)")
	scenes := flag.String("scenes", "paced,burst,tls,stuck,resume", "what is measured")
	bin := flag.String("bin", "", "keep the built programs in this directory")
	built := flag.Bool("built", false, "use what is in there")
	jsonTo := flag.String("json", "", "write the report as JSON to this file as well")
	serveFloor := flag.String("floor", "", "be the floor of the comparison, at this address")
	flag.Parse()
	if *serveFloor != "" {
		fmt.Fprintln(os.Stderr, runFloor(*serveFloor))
		os.Exit(1)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, z, fields(*only), fields(*scenes), *bin, *built, *jsonTo); err != nil {
		fmt.Fprintln(os.Stderr, "feed:", err)
		cancel()
		os.Exit(1)
	}
}

func fields(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

func run(ctx context.Context, z sizes, only, scenes []string, bin string, asBuilt bool, jsonTo string) error {
	if err := raiseFiles(uint64(z.subscribers) + 1000); err != nil {
		return err
	}
	if bin == "" {
		dir, err := os.MkdirTemp("", "ossicle-bench-feed")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		bin = dir
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(bin, 0o700); err != nil {
		return err
	}
	cert, err := newCertificate(bin)
	if err != nil {
		return err
	}
	r := report{CPUs: runtime.NumCPU(), Go: runtime.Version(), Begun: time.Now().UTC(), LoadBefore: loadAverage(), Sizes: fmt.Sprintf("%+v", z)}
	var built []product
	for _, p := range []product{ossicle{token: new(string)}, ossicle{token: new(string), memory: true}, mercure{}, mercure{bolt: true}, centrifugo{}, floor{}} {
		if len(only) > 0 && !slices.Contains(only, p.name()) {
			continue
		}
		if asBuilt {
			progress("take %s as it was built", p.name())
		} else if err := p.build(ctx, bin); err != nil {
			progress("SKIPPED %s: %v", p.name(), err)
			r.Skipped = append(r.Skipped, skipped{p.name(), err.Error()})
			continue
		}
		built = append(built, p)
		r.Products = append(r.Products, &figures{Name: p.name(), Own: own(p), Peer: peer(p)})
	}
	// Scene by scene, so that what is compared is close in time.
	for _, scene := range scenes {
		for i, p := range built {
			if _, ok := p.(floor); ok && scene != "paced" && scene != "burst" {
				continue
			}
			progress("%s: %s (load %s)", scene, p.name(), loadAverage())
			if err := r.Products[i].measure(ctx, scene, p, bin, cert, z); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				progress("FAILED %s: %s: %v", scene, p.name(), err)
				r.Products[i].Failed = append(r.Products[i].Failed, scene+": "+err.Error())
			}
		}
	}
	r.LoadAfter = loadAverage()
	r.print(os.Stdout)
	if jsonTo == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(jsonTo, append(text, '\n'), 0o644)
}

// peer says whether a product is one to compare with.
func peer(p product) bool { return !own(p) && p.name() != floor{}.name() }

func own(p product) bool { _, ours := p.(ossicle); return ours }

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().UTC().Format("15:04:05 ")+format+"\n", args...)
}

// measure takes one scene of a product, on a server of its own.
func (f *figures) measure(ctx context.Context, scene string, p product, bin string, cert *certificate, z sizes) (err error) {
	if scene != "tls" {
		cert = nil
	}
	base := ""
	if t, ok := p.(tuned); ok {
		p, base = t.tune(scene)
	}
	s, err := start(ctx, p, bin, base, cert)
	if err != nil {
		return err
	}
	defer s.stop()
	defer func() {
		if err != nil {
			err = s.complain(err)
		}
	}()
	switch scene {
	case "paced":
		f.Paced, err = pointer(measureFanout(ctx, s, z.subscribers, 1, z.paced, z.rate, z))
	case "burst":
		f.Burst, err = pointer(measureFanout(ctx, s, z.subscribers, z.bursts, z.burst, 0, z))
	case "tls":
		f.TLSKiB, err = pointer(measureTLS(ctx, s, cert, z))
	case "stuck":
		f.Stuck, err = pointer(measureStuck(ctx, s, z.others, z.flood, z))
	case "resume":
		var stream string
		if stream, err = history(ctx, s, z); err != nil {
			return err
		}
		f.Recent, err = pointer(measureResume(ctx, s, stream, z.recent, z))
		if err == nil {
			f.Missed, err = pointer(measureResume(ctx, s, stream, z.missed, z))
		}
		if errors.Is(err, errNoResume) {
			f.Missed, f.Recent, err = nil, nil, nil
		}
	default:
		return fmt.Errorf("there is no scene %q", scene)
	}
	return err
}

// pointer is nil for what could not be measured.
func pointer[T any](v T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return &v, nil
}
