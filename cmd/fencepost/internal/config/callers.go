package config

import (
	"fmt"
	"strings"

	"fencepost/policy"
)

func (c *Config) validateCallers(k *checker) {
	var read []policy.Caller
	var index []int
	for i, x := range c.Callers {
		if k.whole(fmt.Sprintf("callers[%d]", i)) {
			read, index = append(read, policy.Caller{Name: x.Name, Token: string(x.Token)}), append(index, i)
		}
	}
	_, err := policy.NewCallers(read)
	if err == nil {
		return
	}
	for _, e := range flatten(err) {
		path, msg := "callers", e.Error()
		for n, x := range read {
			// The place names the caller. Its name is not repeated: it may be the
			// token, by a slip.
			for _, label := range []string{fmt.Sprintf("caller %d: ", n+1), "caller " + x.Name + ": "} {
				if rest, is := strings.CutPrefix(msg, label); is && path == "callers" {
					path, msg = fmt.Sprintf("callers[%d]", index[n]), rest
				}
			}
		}
		k.fail(path, "%s", msg)
	}
}

// PolicyCallers turns the callers into the policy package's; nil when there are
// none.
func (c *Config) PolicyCallers() (*policy.Callers, error) {
	if len(c.Callers) == 0 {
		return nil, nil
	}
	callers := make([]policy.Caller, len(c.Callers))
	for i, x := range c.Callers {
		callers[i] = policy.Caller{Name: x.Name, Token: string(x.Token)}
	}
	return policy.NewCallers(callers)
}
