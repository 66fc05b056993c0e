//go:build failpoint

package failpoint

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

var (
	mu   sync.Mutex
	plan = parse(os.Getenv("FENCEPOST_FAILPOINT"))
)

type action struct {
	what string
	at   int
}

func parse(s string) map[string]*action {
	m := make(map[string]*action)
	for _, part := range strings.Split(s, ",") {
		name, what, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			continue
		}
		a := &action{what: what, at: 1}
		if w, n, ok := strings.Cut(what, "@"); ok {
			a.what = w
			a.at, _ = strconv.Atoi(n)
		}
		m[name] = a
	}
	return m
}

// Hit carries out what the environment asks for at this point.
func Hit(name string) {
	mu.Lock()
	a := plan[name]
	if a == nil {
		mu.Unlock()
		return
	}
	a.at--
	due := a.at == 0
	mu.Unlock()
	if !due {
		return
	}
	switch a.what {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "stop":
		// The signal arrives in its own time: without waiting for the one that ends
		// the stop, this goroutine would run on for a while.
		continued := make(chan os.Signal, 1)
		signal.Notify(continued, syscall.SIGCONT)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-continued
		signal.Stop(continued)
	case "panic":
		panic("failpoint " + name)
	}
}
