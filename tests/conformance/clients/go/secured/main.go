// Command secured sends one record through a secured listener with franz-go or sarama, and says how that went: one line, "sent" or the
// client's error. tests/conformance/clients/secured.py says what the arguments are.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	xscram "github.com/xdg-go/scram"
)

type access struct {
	Client, Bootstrap, Topic, Mechanism, User, Password, Ca, Certificate string
}

func (a access) tls() *tls.Config {
	pem, err := os.ReadFile(a.Ca)
	if err != nil {
		panic(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: trusted}
	if a.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(a.Certificate, a.Certificate)
		if err != nil {
			panic(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func (a access) franz() error {
	options := []kgo.Opt{kgo.SeedBrokers(a.Bootstrap), kgo.DialTLSConfig(a.tls()), kgo.AllowAutoTopicCreation()}
	var mechanism sasl.Mechanism
	switch a.Mechanism {
	case "PLAIN":
		mechanism = plain.Auth{User: a.User, Pass: a.Password}.AsMechanism()
	case "OAUTHBEARER":
		mechanism = oauth.Auth{Token: a.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		mechanism = scram.Auth{User: a.User, Pass: a.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		mechanism = scram.Auth{User: a.User, Pass: a.Password}.AsSha512Mechanism()
	}
	if mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	// franz-go sends for ever what it cannot send; its Ping says why.
	if err := client.Ping(ctx); err != nil {
		return err
	}
	return client.ProduceSync(ctx, &kgo.Record{Topic: a.Topic, Value: []byte("x")}).FirstErr()
}

// conversation is what sarama leaves to its users: a SCRAM client.
type conversation struct {
	hash xscram.HashGeneratorFcn
	*xscram.ClientConversation
}

func (c *conversation) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

// Token is what sarama asks for a bearer token.
func (a access) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: a.Password}, nil
}

func (a access) sarama() error {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = a.tls()
	if a.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.User, config.Net.SASL.Password = a.User, a.Password
		config.Net.SASL.Mechanism = sarama.SASLMechanism(a.Mechanism)
		config.Net.SASL.TokenProvider = a
		hashes := map[string]xscram.HashGeneratorFcn{"SCRAM-SHA-256": sha256.New, "SCRAM-SHA-512": sha512.New}
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: hashes[a.Mechanism]} }
	}
	producer, err := sarama.NewSyncProducer([]string{a.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: a.Topic, Value: sarama.StringEncoder("x")})
	return err
}

func main() {
	var given access
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		panic(err)
	}
	send := given.franz
	if given.Client == "sarama" {
		send = given.sarama
	}
	if err := send(); err != nil {
		fmt.Printf("%v\n", err)
		return
	}
	fmt.Println("sent")
}
