// Command worker is a worker with franz-go or sarama; tests/conformance/clients/__init__.py says what a worker is.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

// given are the arguments, name=value.
var given = map[string]string{}

var saying sync.Mutex

// place is a partition, [topic, partition] in JSON.
type place struct {
	topic     string
	partition int32
}

func (p place) MarshalJSON() ([]byte, error) { return json.Marshal([]any{p.topic, p.partition}) }

func say(event string, fields map[string]any) {
	line := map[string]any{"event": event, "at": float64(time.Now().UnixMicro()) / 1e6}
	for name, value := range fields {
		line[name] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	saying.Lock()
	defer saying.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func sayError(err error) { say("error", map[string]any{"error": err.Error()}) }

func option(name, otherwise string) string {
	if value, ok := given[name]; ok {
		return value
	}
	return otherwise
}

func number(name string, otherwise int) int {
	value, err := strconv.Atoi(option(name, strconv.Itoa(otherwise)))
	if err != nil {
		panic(err)
	}
	return value
}

// places are sorted, so that lines are easy to compare.
func places(partitions map[string][]int32) []place {
	found := []place{}
	for topic, indexes := range partitions {
		for _, index := range indexes {
			found = append(found, place{topic, index})
		}
	}
	sort.Slice(found, func(a, b int) bool { return found[a].partition < found[b].partition })
	return found
}

// values are what a transaction of role=transact writes.
func values(transaction int) []string {
	found := []string{}
	for record := range number("records", 1) {
		found = append(found, fmt.Sprintf("%s-%d-%d", given["name"], transaction, record))
	}
	return found
}

// version of a module that this program is made of.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return "unknown"
}

// leaving ends when the line "leave" or the end of standard input has come.
func leaving() context.Context {
	told, end := context.WithCancel(context.Background())
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() && lines.Text() != "leave" {
		}
		end()
	}()
	return told
}

func main() {
	for _, argument := range os.Args[1:] {
		name, value, _ := strings.Cut(argument, "=")
		given[name] = value
	}
	roles := map[string]func(context.Context) error{
		"franz-go consume":  franzConsume,
		"franz-go copy":     franzCopy,
		"franz-go transact": franzTransact,
		"sarama consume":    saramaConsume,
		"sarama transact":   saramaTransact,
	}
	modules := map[string]string{"franz-go": "github.com/twmb/franz-go", "sarama": "github.com/IBM/sarama"}
	client := given["client"]
	say("ready", map[string]any{"client": client, "version": version(modules[client])})
	if err := roles[client+" "+given["role"]](leaving()); err != nil {
		say("fatal", map[string]any{"error": err.Error()})
		os.Exit(1)
	}
	say("left", nil)
}
