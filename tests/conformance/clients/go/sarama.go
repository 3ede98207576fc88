package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V4_0_0_0
	config.ClientID = option("name", "sarama")
	config.Metadata.Retry.Max = 100
	config.Metadata.Retry.Backoff = 100 * time.Millisecond
	return config
}

func brokers() []string { return strings.Split(given["bootstrap"], ",") }

// saramaMember is told of a member's sessions and takes its records.
type saramaMember struct {
	admin sarama.ClusterAdmin
}

func (m *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	say("assigned", map[string]any{
		"partitions": places(session.Claims()), "generation": session.GenerationID(), "member": session.MemberID(),
	})
	return nil
}

func (m *saramaMember) Cleanup(session sarama.ConsumerGroupSession) error {
	say("revoked", map[string]any{"partitions": places(session.Claims())})
	return nil
}

func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			offsets := []int64{message.Offset}
			session.MarkMessage(message, "")
			for more := true; more && len(offsets) < 500; {
				select {
				case message, ok = <-claim.Messages():
					if more = ok; ok {
						offsets = append(offsets, message.Offset)
						session.MarkMessage(message, "")
					}
				default:
					more = false
				}
			}
			say("consumed", map[string]any{"records": []any{[]any{claim.Topic(), claim.Partition(), offsets}}})
			session.Commit()
			m.tell(claim, offsets[len(offsets)-1]+1)
		}
	}
}

// tell says that an offset is committed once it is found there: Commit tells nothing.
func (m *saramaMember) tell(claim sarama.ConsumerGroupClaim, offset int64) {
	found, err := m.admin.ListConsumerGroupOffsets(given["group"], map[string][]int32{claim.Topic(): {claim.Partition()}})
	if err != nil {
		say("refused", map[string]any{"error": err.Error()})
		return
	}
	block := found.GetBlock(claim.Topic(), claim.Partition())
	if block == nil || block.Err != sarama.ErrNoError || block.Offset < offset {
		say("refused", map[string]any{"error": "not found afterwards"})
		return
	}
	say("committed", map[string]any{"offsets": []any{[]any{claim.Topic(), claim.Partition(), offset}}})
}

func saramaConsume(told context.Context) error {
	config := saramaConfig()
	strategies := map[string]sarama.BalanceStrategy{
		"range":      sarama.NewBalanceStrategyRange(),
		"roundrobin": sarama.NewBalanceStrategyRoundRobin(),
		"sticky":     sarama.NewBalanceStrategySticky(),
	}
	session := time.Duration(number("session_timeout_ms", 10000)) * time.Millisecond
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[option("assignor", "range")]}
	config.Consumer.Group.Session.Timeout = session
	config.Consumer.Group.Heartbeat.Interval = min(500*time.Millisecond, session/3)
	config.Consumer.Group.InstanceId = option("instance", "")
	config.Consumer.Group.Rebalance.Retry.Max = 20
	config.Consumer.Group.Rebalance.Retry.Backoff = 200 * time.Millisecond
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Return.Errors = true
	admin, err := sarama.NewClusterAdmin(brokers(), config)
	if err != nil {
		return err
	}
	defer admin.Close()
	group, err := sarama.NewConsumerGroup(brokers(), given["group"], config)
	if err != nil {
		return err
	}
	go func() {
		for failed := range group.Errors() {
			sayError(failed)
		}
	}()
	member := &saramaMember{admin}
	for told.Err() == nil {
		if err := group.Consume(told, []string{given["topic"]}, member); err != nil && !errors.Is(err, context.Canceled) {
			// As its documentation has it: an application calls Consume again and again.
			sayError(err)
			time.Sleep(200 * time.Millisecond)
		}
	}
	// A coordinator that was killed before this member could leave has taken the connection with it.
	if err := group.Close(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func saramaTransact(context.Context) error {
	config := saramaConfig()
	config.Producer.Idempotent = true
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Transaction.ID = given["transactional_id"]
	config.Producer.Transaction.Timeout = time.Duration(number("transaction_timeout_ms", 20000)) * time.Millisecond
	config.Producer.Transaction.Retry.Max = 200
	config.Producer.Retry.Max = 100
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(brokers(), config)
	if err != nil {
		return err
	}
	defer producer.Close()
	every := number("abort_every", 0)
	for transaction := range number("transactions", 1) {
		say("begin", map[string]any{"number": transaction})
		outcome := "committed"
		if every > 0 && transaction%every == every-1 {
			outcome = "aborted"
		}
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		messages := []*sarama.ProducerMessage{}
		for _, value := range values(transaction) {
			text := sarama.StringEncoder(value)
			messages = append(messages, &sarama.ProducerMessage{Topic: given["topic"], Key: text, Value: text})
		}
		if err := producer.SendMessages(messages); err != nil {
			sayError(err)
			outcome = "aborted"
		}
		if outcome == "committed" {
			err = producer.CommitTxn()
		} else {
			err = producer.AbortTxn()
		}
		if err != nil {
			return err
		}
		say("transaction", map[string]any{"number": transaction, "outcome": outcome})
	}
	return nil
}
