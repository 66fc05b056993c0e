package config

import "reflect"

// Fixed names what next changes and a running process cannot exchange: the
// top-level keys outside routes and callers, and the step from no callers to some
// or back. Without callers there is one scope for all, so that step moves every key
// to another scope, where what was sent is not known and would be sent again.
func (c *Config) Fixed(next *Config) []string {
	var out []string
	a, b := reflect.ValueOf(*c), reflect.ValueOf(*next)
	for i := range a.NumField() {
		switch name := a.Type().Field(i).Tag.Get("yaml"); name {
		case "routes":
		case "egress":
			// Where clients may go is exchanged; how the proxy is reached, and reaches, not.
			old, now := c.Egress, next.Egress
			old.Allow, old.Mode, old.Ports = now.Allow, now.Mode, now.Ports
			if !reflect.DeepEqual(old, now) {
				out = append(out, "egress (but for allow, mode and ports)")
			}
		case "callers":
			if (len(c.Callers) == 0) != (len(next.Callers) == 0) {
				out = append(out, "callers (none to some, or back)")
			}
		default:
			if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
				out = append(out, name)
			}
		}
	}
	return out
}

// LostCallers gives the names of the callers that next no longer has, in order.
// Their keys cannot be reached any more; under another name they would be new.
func (c *Config) LostCallers(next *Config) []string {
	kept := make(map[string]bool, len(next.Callers))
	for _, x := range next.Callers {
		kept[x.Name] = true
	}
	var lost []string
	for _, x := range c.Callers {
		if !kept[x.Name] {
			lost = append(lost, x.Name)
		}
	}
	return lost
}
