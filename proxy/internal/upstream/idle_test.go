package upstream

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestIdleTakesWhatIsAtHandAndOpensNothing(t *testing.T) {
	served := 0
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	p := New(Options{})
	defer p.Close()
	if c := p.Idle("http", host); c != nil {
		t.Fatal("a connection out of nowhere")
	}
	send := func(c *Conn) {
		t.Helper()
		req, _ := http.NewRequest("POST", s.URL, http.NoBody)
		resp, err := c.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	c, err := p.Connect(context.Background(), "http", host)
	if err != nil {
		t.Fatal(err)
	}
	send(c)
	one := p.Idle("http", host)
	if one == nil || !one.Reused() {
		t.Fatal("the idle connection is not at hand")
	}
	if p.Idle("http", host) != nil {
		t.Error("one connection was given twice")
	}
	if p.Idle("https", host) != nil || p.Idle("http", "other:80") != nil {
		t.Error("another host's connection was given")
	}
	one.Release()
	two := p.Idle("http", host)
	if two == nil {
		t.Fatal("a released connection is not at hand")
	}
	send(two)
	if st := p.Stats(); st.Idle != 1 || st.InUse != 0 || served != 2 {
		t.Errorf("%+v, served %d", st, served)
	}
	p.Close()
	if p.Idle("http", host) != nil {
		t.Error("a closed pool gave a connection")
	}
}
