package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"fencepost/proxy/ca"
)

// errUnusable is what `ca show` ends with where it has already said what is wrong.
var errUnusable = errors.New("the authority cannot be used; see problem")

func caShow(c *caCall) error {
	info, _, problem, err := ca.Describe(c.folder())
	if err != nil {
		return err
	}
	now := time.Now()
	if !c.json {
		describeAuthority(c.stdout, info, problem, now)
	} else if err := writeAuthority(c.stdout, info, problem, now); err != nil {
		return err
	}
	if problem != nil {
		return errUnusable
	}
	if info.NearExpiry(now) {
		fmt.Fprintf(c.stderr, "fencepost ca show: warning: the authority expires in %s; clients need the certificate of a new one before that\n", daysLeft(info.NotAfter, now))
	}
	return nil
}

// describeAuthority prints an authority for people.
func describeAuthority(w io.Writer, i ca.Info, problem error, now time.Time) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(tw, name+"\t"+format+"\n", args...) }
	row("subject", "%s", i.Subject)
	row("serial", "%s", i.Serial)
	row("SHA-256", "%s", i.Fingerprint)
	row("valid", "%s to %s, %s left", i.NotBefore.UTC().Format(time.RFC3339), i.NotAfter.UTC().Format(time.RFC3339), daysLeft(i.NotAfter, now))
	row("signs for", "%s", signsFor(i))
	row("certificate", "%s", i.CertFile)
	row("key", "%s", i.KeyFile)
	if problem != nil {
		row("problem", "%v", problem)
	}
	tw.Flush()
}

// signsFor says in words what an authority is limited to.
func signsFor(i ca.Info) string {
	text := "every host"
	if len(i.PermitDomains) > 0 {
		text = "names at or below " + strings.Join(i.PermitDomains, ", ")
	}
	if i.AddressesExcluded {
		text += ", no IP address"
	}
	if len(i.PermitDomains) > 0 {
		text += " (Java does not honour this limit)"
	}
	return text
}

func daysLeft(end, now time.Time) string {
	switch left := end.Sub(now); {
	case left <= 0:
		return "no time"
	case left < 48*time.Hour:
		return fmt.Sprintf("%.0f hours", left.Hours())
	default:
		return fmt.Sprintf("%.0f days", left.Hours()/24)
	}
}

// writeAuthority prints an authority for programs.
func writeAuthority(w io.Writer, i ca.Info, problem error, now time.Time) error {
	doc := struct {
		Subject           string   `json:"subject"`
		Serial            string   `json:"serial"`
		SHA256            string   `json:"sha256"`
		NotBefore         string   `json:"not_before"`
		NotAfter          string   `json:"not_after"`
		DaysLeft          int      `json:"days_left"`
		NearExpiry        bool     `json:"near_expiry"`
		PermitDomains     []string `json:"permit_domains"`
		AddressesExcluded bool     `json:"addresses_excluded"`
		Certificate       string   `json:"certificate"`
		Key               string   `json:"key"`
		Problem           string   `json:"problem,omitempty"`
	}{
		i.Subject, i.Serial, i.Fingerprint, i.NotBefore.UTC().Format(time.RFC3339), i.NotAfter.UTC().Format(time.RFC3339),
		max(0, int(math.Round(i.NotAfter.Sub(now).Hours()/24))), i.NearExpiry(now), append([]string{}, i.PermitDomains...), i.AddressesExcluded, i.CertFile, i.KeyFile, "",
	}
	if problem != nil {
		doc.Problem = problem.Error()
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err == nil {
		_, err = w.Write(append(b, '\n'))
	}
	return err
}
