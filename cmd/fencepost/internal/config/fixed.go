package config

import "reflect"

// Fixed names the top-level keys outside routes and callers in which next
// differs: those that a running process cannot exchange.
func (c *Config) Fixed(next *Config) []string {
	var out []string
	a, b := reflect.ValueOf(*c), reflect.ValueOf(*next)
	for i := range a.NumField() {
		name := a.Type().Field(i).Tag.Get("yaml")
		if name == "routes" || name == "callers" {
			continue
		}
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			out = append(out, name)
		}
	}
	return out
}
