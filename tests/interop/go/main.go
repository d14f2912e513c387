// Producers and consumers of RocketMQ's Go client, by name, driven by lines of JSON: one request a
// line on standard input, one answer a line on standard output, as java/StoreDriver.java. An answer
// holds "error" where the request failed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const timeout = 30 * time.Second

type request struct {
	Act, Name, NameServers, Group, Topic, Kind, Expression string
	Bodies                                                 []string
	Body, Mode, Tags, Keys                                 string
	OrderKey, DelayLevel                                   int
	MaxReconsumeTimes                                      int32
	Trace, IsSQL, TLS                                      bool
}

type consumed struct {
	Body           string `json:"body"`
	Topic          string `json:"topic"`
	QueueID        int    `json:"queueId"`
	QueueOffset    int64  `json:"queueOffset"`
	ReconsumeTimes int32  `json:"reconsumeTimes"`
	MsgID          string `json:"msgId"`
	AgeMs          int64  `json:"ageMs"`
}

type result struct {
	Status      string `json:"status"`
	MsgID       string `json:"msgId"`
	QueueID     int    `json:"queueId"`
	QueueOffset int64  `json:"queueOffset"`
}

type answer struct {
	Results  []result   `json:"results"`
	Consumed []consumed `json:"consumed"`
	Reply    string     `json:"reply,omitempty"`
	Asked    []string   `json:"asked"`
	Error    string     `json:"error,omitempty"`
}

var (
	producers    = map[string]rocketmq.Producer{}
	transactions = map[string]*decisions{}
	seen         = map[string]*messages{}
	stops        = map[string]func() error{}
)

func main() {
	answers := json.NewEncoder(os.Stdout)
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked request
		var found answer
		if err = json.Unmarshal(line, &asked); err == nil {
			err = run(&asked, &found)
		}
		if err != nil {
			found.Error = err.Error()
		}
		if answers.Encode(found) != nil {
			return
		}
	}
}

func run(asked *request, found *answer) (err error) {
	switch asked.Act {
	case "produce":
		return produce(asked)
	case "consume":
		seen[asked.Name] = &messages{released: make(chan struct{})}
		if asked.Kind == "pull" {
			return pull(asked)
		}
		return push(asked)
	case "send":
		found.Results, err = send(asked)
	case "request":
		reply, err := producers[asked.Name].Request(
			context.Background(), timeout, message(asked, asked.Body))
		if err != nil {
			return err
		}
		found.Reply = string(reply.Body)
	case "consumed":
		found.Consumed = seen[asked.Name].all()
	case "asked":
		found.Asked = transactions[asked.Name].all()
	case "release":
		close(seen[asked.Name].released)
	case "stop":
		return stops[asked.Name]()
	default:
		return fmt.Errorf("unknown act: %s", asked.Act)
	}
	return err
}

func produce(asked *request) error {
	options := []producer.Option{
		producer.WithNameServer(strings.Split(asked.NameServers, ";")),
		producer.WithGroupName(asked.Group),
		producer.WithInstanceName(asked.Name),
		producer.WithSendMsgTimeout(timeout),
		producer.WithTls(asked.TLS),
	}
	if asked.Trace {
		options = append(options, producer.WithTrace(trace(asked)))
	}
	if asked.Mode == "ordered" {
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	if asked.Mode == "transaction" {
		return produceInTransactions(asked, options)
	}
	started, err := rocketmq.NewProducer(options...)
	if err != nil {
		return err
	}
	producers[asked.Name], stops[asked.Name] = started, started.Shutdown
	return started.Start()
}

func trace(asked *request) *primitive.TraceConfig {
	return &primitive.TraceConfig{NamesrvAddrs: strings.Split(asked.NameServers, ";")}
}

// produceInTransactions starts a producer that decides by bodies: commit, rollback, or undecided
// until the broker asks, as in "later commit".
func produceInTransactions(asked *request, options []producer.Option) error {
	decided := &decisions{}
	started, err := rocketmq.NewTransactionProducer(decided, options...)
	if err != nil {
		return err
	}
	decided.producer = started
	transactions[asked.Name], stops[asked.Name] = decided, started.Shutdown
	return started.Start()
}

type decisions struct {
	producer rocketmq.TransactionProducer
	lock     sync.Mutex
	asked    []string
}

func decision(body string) primitive.LocalTransactionState {
	switch {
	case strings.HasPrefix(body, "commit"):
		return primitive.CommitMessageState
	case strings.HasPrefix(body, "rollback"):
		return primitive.RollbackMessageState
	default:
		return primitive.UnkonwnState
	}
}

func (decided *decisions) ExecuteLocalTransaction(
	half *primitive.Message) primitive.LocalTransactionState {
	return decision(string(half.Body))
}

func (decided *decisions) CheckLocalTransaction(
	half *primitive.MessageExt) primitive.LocalTransactionState {
	decided.lock.Lock()
	defer decided.lock.Unlock()
	decided.asked = append(decided.asked, string(half.Body))
	return decision(strings.TrimPrefix(string(half.Body), "later "))
}

func (decided *decisions) all() []string {
	decided.lock.Lock()
	defer decided.lock.Unlock()
	return append([]string{}, decided.asked...)
}

func send(asked *request) ([]result, error) {
	var sent []*primitive.Message
	for _, body := range asked.Bodies {
		sent = append(sent, message(asked, body))
	}
	client := producers[asked.Name]
	switch asked.Mode {
	case "async":
		return sendAsync(client, sent)
	case "oneway":
		for _, one := range sent {
			if err := client.SendOneWay(context.Background(), one); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "batch":
		stored, err := client.SendSync(context.Background(), sent...)
		return results(stored), err
	default:
		var found []result
		for _, one := range sent {
			stored, err := sendOne(asked.Name, one)
			if err != nil {
				return nil, err
			}
			found = append(found, results(stored)...)
		}
		return found, nil
	}
}

func sendOne(name string, one *primitive.Message) (*primitive.SendResult, error) {
	if decided, inTransactions := transactions[name]; inTransactions {
		stored, err := decided.producer.SendMessageInTransaction(context.Background(), one)
		if err != nil {
			return nil, err
		}
		return stored.SendResult, nil
	}
	return producers[name].SendSync(context.Background(), one)
}

func sendAsync(client rocketmq.Producer, sent []*primitive.Message) ([]result, error) {
	type end struct {
		stored *primitive.SendResult
		err    error
	}
	ends := make(chan end, len(sent))
	for _, one := range sent {
		err := client.SendAsync(context.Background(),
			func(_ context.Context, stored *primitive.SendResult, err error) {
				ends <- end{stored, err}
			}, one)
		if err != nil {
			return nil, err
		}
	}
	var found []result
	for range sent {
		one := <-ends
		if one.err != nil {
			return nil, one.err
		}
		found = append(found, results(one.stored)...)
	}
	return found, nil
}

func results(stored *primitive.SendResult) []result {
	if stored == nil || stored.MessageQueue == nil {
		return nil
	}
	status := fmt.Sprint(stored.Status)
	if stored.Status == primitive.SendOK {
		status = "SEND_OK"
	}
	return []result{{status, stored.MsgID, stored.MessageQueue.QueueId, stored.QueueOffset}}
}

func message(asked *request, body string) *primitive.Message {
	made := primitive.NewMessage(asked.Topic, []byte(body))
	if asked.Tags != "" {
		made.WithTag(asked.Tags)
	}
	if asked.Keys != "" {
		made.WithKeys(strings.Split(asked.Keys, " "))
	}
	if asked.OrderKey != 0 {
		made.WithShardingKey(fmt.Sprint(asked.OrderKey))
	}
	if asked.DelayLevel != 0 {
		made.WithDelayTimeLevel(asked.DelayLevel)
	}
	return made
}
