package clientenv

import (
	"os"
	"strings"
	"testing"
)

func TestTheDocumentationNamesEveryVariable(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/egress.md")
	if err != nil {
		t.Fatal(err)
	}
	base := append(bare(t, authority(t)), "npm_config_cafile=/none")
	for _, v := range prepare(t, Settings{Base: base, Proxy: "http://127.0.0.1:3128"}).Variables {
		if v.Name != "npm_config_cafile" && !strings.Contains(string(text), "`"+v.Name+"`") {
			t.Errorf("docs/egress.md does not name %s", v.Name)
		}
	}
}
