// asynq: asynq_peer URL push|work CASE JOBS.
package main

import (
	"context"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
)

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
	concurrency := 64
	if name == "sleep" {
		concurrency = 256
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
