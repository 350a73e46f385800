// asynq: asynq_peer URL push|work CASE JOBS. lab/peers/README.md has the settings' sources.
package main

import (
	"context"
	"log"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
)

// Set in all processes but the first.
const another = "ASYNQ_PEER_IS_ANOTHER"

func noop(context.Context, *asynq.Task) error { return nil }

func compute(context.Context, *asynq.Task) error {
	for begin := time.Now(); time.Since(begin) < time.Millisecond; {
	}
	return nil
}

func sleep(context.Context, *asynq.Task) error {
	time.Sleep(10 * time.Millisecond)
	return nil
}

func main() {
	url, role, name := os.Args[1], os.Args[2], os.Args[3]
	server, err := asynq.ParseRedisURI(url)
	if err != nil {
		log.Fatal(err)
	}
	if role == "push" {
		count, err := strconv.Atoi(os.Args[4])
		if err != nil {
			log.Fatal(err)
		}
		client := asynq.NewClient(server)
		defer client.Close()
		for range count {
			if _, err := client.Enqueue(asynq.NewTask(name, nil)); err != nil {
				log.Fatal(err)
			}
		}
		return
	}
	// A server fetches one job after the other, so each CPU has a process.
	if os.Getenv(another) == "" {
		for range runtime.NumCPU() - 1 {
			command := exec.Command(os.Args[0], os.Args[1:]...)
			command.Env = append(os.Environ(), another+"=yes")
			command.Stderr = os.Stderr
			if err := command.Start(); err != nil {
				log.Fatal(err)
			}
		}
	}
	concurrency := 64
	if name == "sleep" {
		concurrency = 256 / runtime.NumCPU()
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc("noop", noop)
	mux.HandleFunc("compute", compute)
	mux.HandleFunc("sleep", sleep)
	config := asynq.Config{Concurrency: concurrency, LogLevel: asynq.FatalLevel}
	if err := asynq.NewServer(server, config).Run(mux); err != nil {
		log.Fatal(err)
	}
}
