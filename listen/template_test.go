package listen_test

import (
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/listen"
)

const eventsTemplate = "kcp-events://watch/{workspace}/{resource}{?namespace,labelSelector,fieldSelector,kcp}"

func parse(t testing.TB, template string) *listen.URITemplate {
	t.Helper()
	u, err := listen.ParseTemplate(template)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

type values = map[string]string

// W-046, known fault B-062.
func TestTemplateMatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		template, uri string
		want          values // nil: no match
	}{
		// Query variables: any subset, any order.
		{eventsTemplate, "kcp-events://watch/root:app/configmaps", values{"workspace": "root:app", "resource": "configmaps"}},
		{eventsTemplate, "kcp-events://watch/root%3Aapp/configmaps?namespace=a", values{"workspace": "root:app", "resource": "configmaps", "namespace": "a"}},
		{eventsTemplate, "kcp-events://watch/w/r?namespace=a&labelSelector=x%3Dy", values{"workspace": "w", "resource": "r", "namespace": "a", "labelSelector": "x=y"}},
		{eventsTemplate, "kcp-events://watch/w/r?labelSelector=x%3Dy&namespace=a", values{"workspace": "w", "resource": "r", "namespace": "a", "labelSelector": "x=y"}},
		{eventsTemplate, "kcp-events://watch/w/r?kcp=&namespace=a", values{"workspace": "w", "resource": "r", "namespace": "a", "kcp": ""}},
		{eventsTemplate, "kcp-events://watch/w/r?", values{"workspace": "w", "resource": "r"}},
		{eventsTemplate, "kcp-events://watch/w/r?labelSelector=a=b,c%21%3Dd", values{"workspace": "w", "resource": "r", "labelSelector": "a=b,c!=d"}},
		{eventsTemplate, "kcp-events://watch/w/r?unknown=1", nil},
		{eventsTemplate, "kcp-events://watch/w/r?namespace=a&namespace=a", nil},
		{eventsTemplate, "kcp-events://watch/w/r#frag", nil},
		{eventsTemplate, "kcp-events://watch/w", nil},
		{eventsTemplate, "kcp-events://watch/w/", nil},
		{eventsTemplate, "kcp-events://watch/w/r/s", nil},
		{eventsTemplate, "KCP-events://watch/w/r", nil},
		{eventsTemplate, "kcp-events://watch/w/%zz", nil},
		{eventsTemplate, "kcp-events://watch/w/%ff", nil},
		{eventsTemplate, "kcp-events://watch/w/r?namespace=%f", nil},

		// Parameters that the template spells out.
		{"x://s?q={q}&fixed=1{&a,b}", "x://s?b=2&fixed=1&q=hi%20there", values{"q": "hi there", "b": "2"}},
		{"x://s?q={q}&fixed=1{&a,b}", "x://s?q=hi&fixed=2", nil},
		{"x://s?q={q}&fixed=1{&a,b}", "x://s?q=hi", nil},
		{"x://s?flag{&a}", "x://s?a=1&flag", values{"a": "1"}},
		{"x://s?flag{&a}", "x://s?a=1&flag=", nil},
		{"x://s?pre-{x}=1", "x://s?pre-7=1", values{"x": "7"}}, // a variable in a name: in its order
		{"x://s{?a}{#f}", "x://s?a=1#part", values{"a": "1", "f": "part"}},
		{"x://s{?a}{#f}", "x://s#part", values{"f": "part"}},
		{"x://s{?a*}", "x://s?a=1&a=2&a=3%2C4", values{"a": "1,2,3,4"}},
		{"x://s{?dotted.name}", "x://s?dotted.name=1", values{"dotted.name": "1"}},

		// The path.
		{"memo://notes", "memo://notes", values{}},
		{"memo://notes", "memo://notes2", nil},
		{"memo://{id}", "memo://", nil},
		{"memo://{id}", "memo://a?b", nil},
		{"file:///{+path}", "file:///a/b%20c.txt", values{"path": "a/b c.txt"}},
		{"proxy://{+url}", "proxy://http://a/b?c=d#e", values{"url": "http://a/b?c=d#e"}},
		{"f://{+path}{?rev}", "f://a/b?rev=7", values{"path": "a/b", "rev": "7"}},
		{"repo://{owner}/{repo}/contents{/path*}", "repo://o/r/contents/a/b/c%2Fd", values{"owner": "o", "repo": "r", "path": "a/b/c/d"}},
		{"repo://{owner}/{repo}/contents{/path*}", "repo://o/r/contents", values{"owner": "o", "repo": "r"}},
		{"x://h{/a,b}", "x://h/1/2", values{"a": "1", "b": "2"}},
		{"x://h{/a,b}", "x://h/1", values{"a": "1"}},
		{"x://h{/a,b}", "x://h/1/2/3", nil},
		{"x://f{.ext}", "x://f.tar.gz", values{"ext": "tar.gz"}},
		{"x://f{.a,b}", "x://f.tar.gz", values{"a": "tar", "b": "gz"}},
		{"x://f{;v,w}", "x://f;w=2", values{"w": "2"}},
		{"x://f{;v,w}", "x://f;v;w=2", values{"v": "", "w": "2"}},
		{"x://{a,b}", "x://1,2", values{"a": "1", "b": "2"}},
		{"x://{a,b}", "x://1", values{"a": "1"}},
		{"x://{a}-{b}", "x://1-2-3", values{"a": "1-2", "b": "3"}},
		{"x://{a}/{a}", "x://1/1", values{"a": "1"}},
		{"x://{a}/{a}", "x://1/2", nil},
		{"x://{a:1}/{a}", "x://k/kiwi", values{"a": "kiwi"}},
		{"x://{a:1}/{a}", "x://k/plum", nil},
		{"x://{a:2}", "x://äö", values{"a": "äö"}},
		{"x://{a:2}", "x://abc", nil},
		{"x://a.c", "x://abc", nil},
		{"x://{a}\n", "x://1\n", nil}, // no valid template: see below
	} {
		u, err := listen.ParseTemplate(tt.template)
		if err != nil {
			if tt.want != nil {
				t.Errorf("%s: %v", tt.template, err)
			}
			continue
		}
		got, ok := u.Match(tt.uri)
		if ok != (tt.want != nil) || ok && !cmp.Equal(got, tt.want) {
			t.Errorf("%s\n\tmatches %s as %v, %v\n\twant %v", tt.template, tt.uri, got, ok, tt.want)
		}
	}
}

func TestTemplateExpand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		template string
		values   values
		want     string
	}{
		{eventsTemplate, values{"workspace": "root:app", "resource": "pods", "labelSelector": "a=b"}, "kcp-events://watch/root%3Aapp/pods?labelSelector=a%3Db"},
		{"repo://r/contents{/path*}", values{"path": "a/b c"}, "repo://r/contents/a/b%20c"},
		{"x://s{?a*}", values{"a": "1,2"}, "x://s?a=1&a=2"},
		{"memo://{id}", values{"stranger": "1"}, "memo://"},
		// RFC 6570, sections 3.2.2 to 3.2.9.
		{"{hello}", values{"hello": "Hello World!"}, "Hello%20World%21"},
		{"O{empty}X{undef}Y", values{"empty": ""}, "OXY"},
		{"{x,y}", values{"x": "1024", "y": "768"}, "1024,768"},
		{"{var:3}{var:30}", values{"var": "välue"}, "v%C3%A4lv%C3%A4lue"},
		{"{+path}/{+half}", values{"path": "/foo/b r", "half": "50%"}, "/foo/b%20r/50%25"},
		{"{+base}index", values{"base": "http://example.com/home%20x/"}, "http://example.com/home%20x/index"},
		{"{#path,x}here", values{"path": "/foo/bar", "x": "1"}, "#/foo/bar,1here"},
		{"X{.x,y}", values{"x": "1", "y": "2"}, "X.1.2"},
		{"{/var,empty}", values{"var": "value", "empty": ""}, "/value/"},
		{"{;x,empty,undef}", values{"x": "1", "empty": ""}, ";x=1;empty"},
		{"{?x,empty,undef}", values{"x": "1", "empty": ""}, "?x=1&empty="},
		{"?fixed=yes{&x}", values{"x": "1"}, "?fixed=yes&x=1"},
		{"x://ü{a}", values{"a": "\u4f60\x00"}, "x://%C3%BC%E4%BD%A0%00"},
	} {
		if got := parse(t, tt.template).Expand(tt.values); got != tt.want {
			t.Errorf("%s with %v expands to %q, want %q", tt.template, tt.values, got, tt.want)
		}
	}
	if got := parse(t, "{a}{?b,a}").Variables(); !cmp.Equal(got, []string{"a", "b"}) {
		t.Errorf("Variables() = %q", got)
	}
}

func TestTemplateRefuses(t *testing.T) {
	t.Parallel()
	for _, template := range []string{"x://{", "x://}", "x://{}", "x://{?}", "x://{a b}", "x://{=a}", "x://{a:0}", strings.Repeat("x", 4097), strings.Repeat("{a}", 65)} {
		if u, err := listen.ParseTemplate(template); err == nil {
			t.Errorf("ParseTemplate(%.40q) = %v", template, u)
		}
	}
	long := "x://" + strings.Repeat("a", 8<<10)
	if _, ok := parse(t, "x://{a}").Match(long); ok {
		t.Error("a URI over the limit matches")
	}
}

// A pattern that makes a backtracking matcher run for ever.
func TestTemplateTime(t *testing.T) {
	t.Parallel()
	u := parse(t, "x://"+strings.Repeat("{+a}{b,c}", 12)+"!")
	begin := time.Now()
	if _, ok := u.Match("x://" + strings.Repeat("a,", 4000)); ok {
		t.Error("it matches")
	}
	if d := time.Since(begin); d > time.Minute {
		t.Errorf("one match took %v", d)
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add(eventsTemplate, "kcp-events://watch/w/r?namespace=a&kcp=b")
	f.Add("x://s?q={q}&fixed=1{&a,b*}{#f}", "x://s?b=1&q=&fixed=1&b=2#f")
	f.Add("x://h{/a,b*}{.c:3}{;d,e}{+f}", "x://h/1/2.abc;d=1;e/f")
	f.Fuzz(func(t *testing.T, template, uri string) {
		u, err := listen.ParseTemplate(template)
		if err != nil {
			return
		}
		got, ok := u.Match(uri)
		if !ok {
			return
		}
		names := u.Variables()
		for name, value := range got {
			if !utf8.ValidString(value) {
				t.Errorf("value %q of %s is no UTF-8", value, name)
			}
			if !strings.Contains(strings.Join(names, "\n"), name) {
				t.Errorf("%s is no variable of %s", name, template)
			}
		}
		if again, ok := u.Match(u.Expand(got)); !ok && len(uri) < 2<<10 && expands(template) {
			t.Errorf("%s matches %q as %q, and not what that expands to, %q (%v)", template, uri, got, u.Expand(got), again)
		}
	})
}

// expands reports whether the expansions of a template are what it matches: all,
// but for literals that are not as an expansion writes them.
func expands(template string) bool {
	for _, c := range template {
		if c > 0x7E || c <= ' ' || strings.ContainsRune("\"%<>\\^`|:*+#.,/;&", c) {
			return false
		}
	}
	return true
}

// What a template expands to, it matches with the same values.
func FuzzTemplateRoundTrip(f *testing.F) {
	f.Add("root:app", "config maps", "ns/1", "a=b,c!=d&e")
	f.Fuzz(func(t *testing.T, workspace, resource, namespace, selector string) {
		in := values{"workspace": workspace, "resource": resource, "namespace": namespace, "labelSelector": selector}
		if workspace == "" || resource == "" {
			return
		}
		for _, v := range in {
			if !utf8.ValidString(v) {
				return
			}
		}
		u := parse(t, eventsTemplate)
		uri := u.Expand(in)
		if len(uri) > 8<<10 {
			return
		}
		got, ok := u.Match(uri)
		if !ok || !maps.Equal(got, in) {
			t.Errorf("%q expands to %s, which matches as %q, %v", in, uri, got, ok)
		}
		if _, err := url.Parse(uri); err != nil {
			t.Errorf("%s: %v", uri, err)
		}
	})
}
