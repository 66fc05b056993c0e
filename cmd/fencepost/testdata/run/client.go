// Command client makes the requests of its arguments with net/http as it is. See
// run_clients_test.go.
package main

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
)

func main() {
	for plan := os.Args[1:]; len(plan) >= 3; plan = plan[3:] {
		var body io.Reader
		if plan[0] == http.MethodPost {
			body = strings.NewReader("amount=1")
		}
		req, err := http.NewRequest(plan[0], plan[1], body)
		if err != nil {
			log.Fatal(err)
		}
		if body != nil {
			req.Header.Set("Idempotency-Key", plan[2])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			log.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			log.Fatal(err)
		}
		protocol := strings.TrimSuffix(strconv.Itoa(resp.ProtoMajor)+"."+strconv.Itoa(resp.ProtoMinor), ".0")
		fmt.Println(strings.Join([]string{strconv.Itoa(resp.StatusCode), protocol, cmp.Or(resp.Header.Get("Idempotent-Replayed"), "-"), strings.Join(strings.Fields(string(text)), " ")}, "\t"))
	}
}
