package main

import (
	"context"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// messages are those that a consumer received, in order.
type messages struct {
	lock     sync.Mutex
	list     []consumed
	released chan struct{}
}

// take returns whether all are done. A body that begins with `fail` is not, the first time that it
// comes; one that begins with `poison` never is. One that begins with `hold` waits for the release.
func (received *messages) take(batch []*primitive.MessageExt) bool {
	for _, one := range batch {
		if strings.HasPrefix(string(one.Body), "hold") {
			<-received.released
		}
	}
	received.lock.Lock()
	defer received.lock.Unlock()
	isDone := true
	for _, one := range batch {
		body := string(one.Body)
		isDone = isDone && !strings.HasPrefix(body, "poison") &&
			(!strings.HasPrefix(body, "fail") || received.has(body))
		received.list = append(received.list, consumed{
			Body:           body,
			Topic:          one.Topic,
			QueueID:        one.Queue.QueueId,
			QueueOffset:    one.QueueOffset,
			ReconsumeTimes: one.ReconsumeTimes,
			MsgID:          one.MsgId,
			AgeMs:          time.Now().UnixNano()/int64(time.Millisecond) - one.BornTimestamp,
		})
	}
	return isDone
}

func (received *messages) has(body string) bool {
	for _, one := range received.list {
		if one.Body == body {
			return true
		}
	}
	return false
}

func (received *messages) all() []consumed {
	received.lock.Lock()
	defer received.lock.Unlock()
	return append([]consumed{}, received.list...)
}

func consumerOptions(asked *request) []consumer.Option {
	return []consumer.Option{
		consumer.WithNameServer(strings.Split(asked.NameServers, ";")),
		consumer.WithGroupName(asked.Group),
		consumer.WithInstance(asked.Name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithTls(asked.TLS),
	}
}

func selector(asked *request) consumer.MessageSelector {
	kind := consumer.TAG
	if asked.IsSQL {
		kind = consumer.SQL92
	}
	return consumer.MessageSelector{Type: kind, Expression: asked.Expression}
}

func push(asked *request) error {
	options := consumerOptions(asked)
	if asked.Trace {
		options = append(options, consumer.WithTrace(trace(asked)))
	}
	if asked.MaxReconsumeTimes != 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(asked.MaxReconsumeTimes))
	}
	failed := consumer.ConsumeRetryLater
	switch asked.Kind {
	case "orderly":
		options = append(options, consumer.WithConsumerOrder(true))
		failed = consumer.SuspendCurrentQueueAMoment
	case "broadcasting":
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	listen := func(ctx context.Context, batch ...*primitive.MessageExt) (
		consumer.ConsumeResult, error) {
		if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			concurrent.DelayLevelWhenNextConsume = 1
		}
		if seen[asked.Name].take(batch) {
			return consumer.ConsumeSuccess, nil
		}
		return failed, nil
	}
	if asked.Kind == "replying" {
		if err := produce(&request{
			Name: asked.Name + "-replies", NameServers: asked.NameServers, Group: asked.Group,
		}); err != nil {
			return err
		}
		listen = reply(producers[asked.Name+"-replies"])
	}
	started, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	stops[asked.Name] = started.Shutdown
	if err = started.Subscribe(asked.Topic, selector(asked), listen); err != nil {
		return err
	}
	return started.Start()
}

// reply returns a listener that answers each request with its own body after "reply to ".
func reply(client rocketmq.Producer) func(context.Context, ...*primitive.MessageExt) (
	consumer.ConsumeResult, error) {
	return func(ctx context.Context, batch ...*primitive.MessageExt) (
		consumer.ConsumeResult, error) {
		for _, one := range batch {
			// The library makes the reply without its body.
			answer, err := consumer.CreateReplyMessage(one, nil)
			if err != nil {
				return consumer.ConsumeRetryLater, err
			}
			answer.Body = []byte("reply to " + string(one.Body))
			if _, err = client.SendSync(ctx, answer); err != nil {
				return consumer.ConsumeRetryLater, err
			}
		}
		return consumer.ConsumeSuccess, nil
	}
}

// pull starts a pull consumer and polls it until it stops.
func pull(asked *request) error {
	started, err := rocketmq.NewPullConsumer(consumerOptions(asked)...)
	if err != nil {
		return err
	}
	if err = started.Subscribe(asked.Topic, selector(asked)); err != nil {
		return err
	}
	if err = started.Start(); err != nil {
		return err
	}
	polling, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for polling.Err() == nil {
			polled, err := started.Poll(polling, time.Second)
			if err != nil {
				continue
			}
			done := consumer.ConsumeRetryLater
			if seen[asked.Name].take(polled.GetMsgList()) {
				done = consumer.ConsumeSuccess
			}
			started.ACK(context.Background(), polled, done)
		}
	}()
	stops[asked.Name] = func() error {
		end()
		<-ended
		return started.Shutdown()
	}
	return nil
}
