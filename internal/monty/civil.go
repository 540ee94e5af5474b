package monty

import (
	"fmt"
	"strings"
)

// civil is a date, a time of day, or both, as Python's datetime module has
// them.
type civil struct {
	kind                 int32
	year, month, day     int32
	hour, minute, second int32
	micro                int32
	zone                 *zone
}

// parseCivil reads a Date, Time or DateTime message; what is missing is zero.
func parseCivil(o object) civil {
	c := civil{kind: o.num}
	slots := []*int32{&c.year, &c.month, &c.day, &c.hour, &c.minute, &c.second, &c.micro}
	if o.num == objTime {
		slots = slots[3:]
	}
	offsetTag := int32(len(slots) + 1)
	_ = fields(o.b, func(f field) error {
		switch {
		case f.num >= 1 && f.num < offsetTag:
			*slots[f.num-1] = int32(f.n)
		case f.num == offsetTag:
			if c.zone == nil {
				c.zone = &zone{}
			}
			c.zone.offset = int32(f.n)
		case f.num == offsetTag+1 && f.b != nil:
			if c.zone == nil {
				c.zone = &zone{}
			}
			c.zone.name = string(f.b)
		}
		return nil
	})
	return c
}

func (c civil) date() string { return fmt.Sprintf("%04d-%02d-%02d", c.year, c.month, c.day) }

func (c civil) clock() string {
	s := fmt.Sprintf("%02d:%02d:%02d", c.hour, c.minute, c.second)
	if c.micro != 0 {
		s += fmt.Sprintf(".%06d", c.micro)
	}
	if c.zone != nil {
		s += offset(c.zone.offset)
	}
	return s
}

func (c civil) repr() string {
	var parts []string
	name := "datetime.datetime"
	switch c.kind {
	case objDate:
		return fmt.Sprintf("datetime.date(%d, %d, %d)", c.year, c.month, c.day)
	case objTime:
		name = "datetime.time"
		parts = []string{fmt.Sprint(c.hour), fmt.Sprint(c.minute)}
	default:
		for _, n := range []int32{c.year, c.month, c.day, c.hour, c.minute} {
			parts = append(parts, fmt.Sprint(n))
		}
	}
	if c.second != 0 || c.micro != 0 {
		parts = append(parts, fmt.Sprint(c.second))
	}
	if c.micro != 0 {
		parts = append(parts, fmt.Sprint(c.micro))
	}
	if c.zone != nil {
		parts = append(parts, "tzinfo="+c.zone.repr())
	}
	return name + "(" + strings.Join(parts, ", ") + ")"
}

// zone is a fixed offset from UTC, in seconds.
type zone struct {
	offset int32
	name   string
}

func parseZone(b []byte) zone {
	var z zone
	_ = fields(b, func(f field) error {
		switch f.num {
		case 1:
			z.offset = int32(f.n)
		case 2:
			z.name = string(f.b)
		}
		return nil
	})
	return z
}

func (z zone) String() string {
	switch {
	case z.name != "":
		return z.name
	case z.offset == 0:
		return "UTC"
	}
	return "UTC" + offset(z.offset)
}

func (z zone) repr() string {
	if z.offset == 0 && z.name == "" {
		return "datetime.timezone.utc"
	}
	s := "datetime.timezone(" + deltaOf(int64(z.offset)).repr()
	if z.name != "" {
		s += ", " + string(appendStrRepr(nil, z.name))
	}
	return s + ")"
}

func offset(seconds int32) string {
	sign, n := '+', int64(seconds)
	if n < 0 {
		sign, n = '-', -n
	}
	s := fmt.Sprintf("%c%02d:%02d", sign, n/3600, n/60%60)
	if n%60 != 0 {
		s += fmt.Sprintf(":%02d", n%60)
	}
	return s
}

// delta is a timedelta, normalised as Python does: only days are negative.
type delta struct{ days, seconds, micros int64 }

func deltaOf(seconds int64) delta {
	d := delta{days: seconds / 86400, seconds: seconds % 86400}
	if d.seconds < 0 {
		d.days, d.seconds = d.days-1, d.seconds+86400
	}
	return d
}

func parseDelta(b []byte) delta {
	var d delta
	_ = fields(b, func(f field) error {
		switch f.num {
		case 1:
			d.days = int64(int32(f.n))
		case 2:
			d.seconds = int64(int32(f.n))
		case 3:
			d.micros = int64(int32(f.n))
		}
		return nil
	})
	return d
}

func (d delta) String() string {
	s := fmt.Sprintf("%d:%02d:%02d", d.seconds/3600, d.seconds/60%60, d.seconds%60)
	if d.micros != 0 {
		s += fmt.Sprintf(".%06d", d.micros)
	}
	switch d.days {
	case 0:
		return s
	case 1, -1:
		return fmt.Sprintf("%d day, %s", d.days, s)
	}
	return fmt.Sprintf("%d days, %s", d.days, s)
}

func (d delta) repr() string {
	var parts []string
	for _, p := range []struct {
		name string
		n    int64
	}{{"days", d.days}, {"seconds", d.seconds}, {"microseconds", d.micros}} {
		if p.n != 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", p.name, p.n))
		}
	}
	if len(parts) == 0 {
		return "datetime.timedelta(0)"
	}
	return "datetime.timedelta(" + strings.Join(parts, ", ") + ")"
}
