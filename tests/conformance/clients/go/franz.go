package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func franzBasics() []kgo.Opt {
	level := kgo.LogLevelNone
	if _, debug := os.LookupEnv("TIDELOG_WORKERS_DEBUG"); debug {
		level = kgo.LogLevelDebug
	}
	return []kgo.Opt{
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, level, nil)),
		kgo.SeedBrokers(strings.Split(given["bootstrap"], ",")...),
		kgo.ClientID(option("name", "franz-go")),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}
}

func franzMembership() []kgo.Opt {
	balancers := map[string]kgo.GroupBalancer{
		"range":              kgo.RangeBalancer(),
		"roundrobin":         kgo.RoundRobinBalancer(),
		"sticky":             kgo.StickyBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	session := time.Duration(number("session_timeout_ms", 10000)) * time.Millisecond
	options := append(franzBasics(),
		kgo.ConsumerGroup(given["group"]),
		kgo.ConsumeTopics(given["topic"]),
		kgo.Balancers(balancers[option("assignor", "range")]),
		kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(min(500*time.Millisecond, session/3)),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
			member, generation := client.GroupMetadata()
			say("assigned", map[string]any{"partitions": places(partitions), "generation": generation, "member": member})
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			say("revoked", map[string]any{"partitions": places(partitions)})
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			say("lost", map[string]any{"partitions": places(partitions)})
		}),
	)
	if instance, ok := given["instance"]; ok {
		options = append(options, kgo.InstanceID(instance))
	}
	if given["protocol"] == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	return options
}

// franzGrouped are the records' offsets, [topic, partition, [offset]].
func franzGrouped(fetches kgo.Fetches) []any {
	found := []any{}
	fetches.EachPartition(func(partition kgo.FetchTopicPartition) {
		if len(partition.Records) == 0 {
			return
		}
		offsets := []int64{}
		for _, record := range partition.Records {
			offsets = append(offsets, record.Offset)
		}
		found = append(found, []any{partition.Topic, partition.Partition, offsets})
	})
	return found
}

func franzTake(told context.Context, poll func(context.Context, int) kgo.Fetches) kgo.Fetches {
	waiting, end := context.WithTimeout(told, 200*time.Millisecond)
	defer end()
	fetches := poll(waiting, 500)
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) && !errors.Is(failed.Err, context.Canceled) {
			sayError(failed.Err)
		}
	}
	return fetches
}

func franzConsume(told context.Context) error {
	client, err := kgo.NewClient(append(franzMembership(), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll())...)
	if err != nil {
		return err
	}
	for told.Err() == nil {
		fetches := franzTake(told, client.PollRecords)
		if fetches.NumRecords() > 0 {
			say("consumed", map[string]any{"records": franzGrouped(fetches)})
			franzCommit(client, client.UncommittedOffsets())
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	return nil
}

// franzCommit says, partition by partition, what became of it.
func franzCommit(client *kgo.Client, offsets map[string]map[int32]kgo.EpochOffset) {
	patience, end := context.WithTimeout(context.Background(), 20*time.Second)
	defer end()
	client.CommitOffsetsSync(patience, offsets, func(_ *kgo.Client, request *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			say("refused", map[string]any{"error": err.Error()})
			return
		}
		refused := map[place]error{}
		for _, topic := range response.Topics {
			for _, partition := range topic.Partitions {
				if failed := kerr.ErrorForCode(partition.ErrorCode); failed != nil {
					refused[place{topic.Topic, partition.Partition}] = failed
					say("refused", map[string]any{"error": failed.(*kerr.Error).Message})
				}
			}
		}
		done := []any{}
		for _, topic := range request.Topics {
			for _, partition := range topic.Partitions {
				if refused[place{topic.Topic, partition.Partition}] == nil {
					done = append(done, []any{topic.Topic, partition.Partition, partition.Offset})
				}
			}
		}
		if len(done) > 0 {
			say("committed", map[string]any{"offsets": done})
		}
	})
}

func franzTransactional() []kgo.Opt {
	return []kgo.Opt{
		kgo.TransactionalID(given["transactional_id"]),
		kgo.TransactionTimeout(time.Duration(number("transaction_timeout_ms", 20000)) * time.Millisecond),
	}
}

// A session whose transaction could not be ended (its coordinator cannot be reached, say) is of no more use: the
// application begins another with the same transactional id, which aborts what the first one left open.
func franzCopy(told context.Context) error {
	for {
		err := franzCopyInOneSession(told)
		if err == nil || told.Err() != nil {
			return err
		}
		sayError(err)
	}
}

func franzCopyInOneSession(told context.Context) error {
	session, err := kgo.NewGroupTransactSession(append(append(franzMembership(), franzTransactional()...), kgo.RequireStableFetchOffsets())...)
	if err != nil {
		return err
	}
	defer session.Close()
	for told.Err() == nil {
		fetches := franzTake(told, session.PollRecords)
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		failed := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			key := fmt.Sprintf("%s-%d-%d", record.Topic, record.Partition, record.Offset)
			session.Produce(context.Background(), &kgo.Record{Topic: given["output"], Key: []byte(key), Value: record.Value}, failed.Promise())
		})
		whether := kgo.TransactionEndTry(failed.Err() == nil)
		committed, err := session.End(context.Background(), whether)
		if err != nil {
			return err
		}
		outcome := "aborted"
		if committed {
			outcome = "committed"
		}
		say("copied", map[string]any{"outcome": outcome, "records": franzGrouped(fetches)})
	}
	return nil
}

func franzTransact(context.Context) error {
	client, err := kgo.NewClient(append(franzBasics(), franzTransactional()...)...)
	if err != nil {
		return err
	}
	defer client.Close()
	every := number("abort_every", 0)
	for transaction := range number("transactions", 1) {
		say("begin", map[string]any{"number": transaction})
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		failed := kgo.AbortingFirstErrPromise(client)
		for _, value := range values(transaction) {
			client.Produce(context.Background(), &kgo.Record{Topic: given["topic"], Key: []byte(value), Value: []byte(value)}, failed.Promise())
		}
		if err := client.Flush(context.Background()); err != nil {
			return err
		}
		outcome := "committed"
		if err := failed.Err(); err != nil {
			sayError(err)
			outcome = "aborted"
		}
		if every > 0 && transaction%every == every-1 {
			outcome = "aborted"
		}
		if err := client.EndTransaction(context.Background(), kgo.TransactionEndTry(outcome == "committed")); err != nil {
			return err
		}
		say("transaction", map[string]any{"number": transaction, "outcome": outcome})
	}
	return nil
}
