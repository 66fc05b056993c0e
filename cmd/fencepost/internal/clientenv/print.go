package clientenv

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Shell returns the variables as a POSIX shell's commands, for
// eval "$(fencepost ca env)".
func (e *Env) Shell() string {
	var b strings.Builder
	for _, v := range e.Variables {
		fmt.Fprintf(&b, "export %s=%s\n", v.Name, quoteShell(v.Value))
	}
	return b.String()
}

func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Docker returns a file for docker run --env-file, which takes values as they are. A
// file rather than options, because options can be read by every process.
func (e *Env) Docker() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# docker run --env-file THIS-FILE --volume %s …\n", quoteShell(e.dir+":"+e.seen+":ro"))
	for _, v := range e.Variables {
		fmt.Fprintf(&b, "%s=%s\n", v.Name, v.Value)
	}
	return b.String()
}

// Kubernetes returns what goes into a pod's spec: env and volumeMounts of a container,
// and volumes. The first lines say how to make the objects that they name. A token is
// not in it: it comes from a Secret.
func (e *Env) Kubernetes() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# kubectl create configmap fencepost-trust --from-file=%s\n", quoteShell(e.dir))
	secret := false
	for _, v := range e.Variables {
		secret = secret || v.Secret
	}
	if secret {
		b.WriteString("# printf %s \"$PROXY_URL\" | kubectl create secret generic fencepost-proxy --from-file=url=/dev/stdin\n")
	}
	b.WriteString("env:\n")
	for _, v := range e.Variables {
		if v.Secret {
			fmt.Fprintf(&b, "  - {name: %s, valueFrom: {secretKeyRef: {name: fencepost-proxy, key: url}}}\n", v.Name)
			continue
		}
		fmt.Fprintf(&b, "  - {name: %s, value: %s}\n", v.Name, quoteYAML(v.Value))
	}
	fmt.Fprintf(&b, "volumeMounts:\n  - {name: fencepost-trust, mountPath: %s, readOnly: true}\n", quoteYAML(e.seen))
	b.WriteString("volumes:\n  - {name: fencepost-trust, configMap: {name: fencepost-trust}}\n")
	return b.String()
}

// quoteYAML writes a string in double quotes, where JSON's escapes are YAML's too.
// Kubernetes expands $(NAME) in values; $$ is a dollar.
func quoteYAML(s string) string {
	b, _ := json.Marshal(strings.ReplaceAll(s, "$(", "$$("))
	return string(b)
}
