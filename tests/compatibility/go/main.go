// Franz-go behind a pipe, for tests only: one JSON object per line in, one per line out, in order, until the input ends.
//
// A question names its "command"; an answer is the command's result, or {"error": name, "message": text}, where the name
// is Kafka's for errors that a broker gave. Keys and values travel as base64.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	patience     = 60 * time.Second
	lineBytesMax = 64 << 20
)

type record struct {
	Offset    int64  `json:"offset"`
	Timestamp int64  `json:"timestamp_ms"`
	Key       []byte `json:"key"`
	Value     []byte `json:"value"`
}

type question struct {
	Command   string            `json:"command"`
	Bootstrap string            `json:"bootstrap"`
	Topic     string            `json:"topic"`
	Settings  map[string]string `json:"settings"`

	Partitions int   `json:"partitions"`
	Partition  int32 `json:"partition"`
	Offset     int64 `json:"offset"`
	Timestamp  int64 `json:"timestamp_ms"`
	Count      int   `json:"count"`

	Messages    []record `json:"messages"`
	Codec       string   `json:"codec"`
	Acks        string   `json:"acks"`
	Idempotent  bool     `json:"idempotent"`
	InFlightMax int      `json:"in_flight_max"`
	BatchBytes  int32    `json:"batch_bytes"`

	Group    string `json:"group"`
	Protocol string `json:"protocol"`
	Instance string `json:"instance_id"`
	IsAuto   bool   `json:"is_auto"`
	Member   int    `json:"member"`
}

type answer = map[string]any

type command func(context.Context, question) (answer, error)

var commands = map[string]command{
	"version":        version,
	"create":         administer(create),
	"describe":       administer(describe),
	"alter":          administer(alter),
	"add_partitions": administer(addPartitions),
	"delete":         administer(deleteTopic),
	"delete_records": administer(deleteRecords),
	"produce":        produce,
	"consume":        consumeFrom,
	"consume_since":  consumeSince,

	"describe_group":       administer(describeGroup),
	"reset_group":          administer(resetGroup),
	"delete_group_offsets": administer(deleteGroupOffsets),
	"delete_group":         administer(deleteGroup),

	"member_join":         join,
	"member_poll":         asMember(poll),
	"member_commit":       asMember(commit),
	"member_commit_async": asMember(commitAsync),
	"member_seek":         asMember(seek),
	"member_pause":        asMember(pause),
	"member_resume":       asMember(resume),
	"member_leave":        asMember(leave),
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, lineBytesMax)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		if err := out.Encode(respond(in.Bytes())); err != nil {
			panic(err)
		}
	}
	if err := in.Err(); err != nil {
		panic(err)
	}
}

func respond(line []byte) answer {
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return failure(err)
	}
	run, known := commands[asked.Command]
	if !known {
		return failure(fmt.Errorf("no such command: %q", asked.Command))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done, err := run(ctx, asked)
	if err != nil {
		return failure(err)
	}
	if done == nil {
		done = answer{}
	}
	return done
}

func failure(err error) answer {
	var broker *kerr.Error
	if errors.As(err, &broker) {
		return answer{"error": broker.Message, "message": err.Error()}
	}
	return answer{"error": "Failed", "message": err.Error()}
}

func version(context.Context, question) (answer, error) {
	info, _ := debug.ReadBuildInfo()
	versions := answer{}
	for _, module := range info.Deps {
		versions[module.Path] = module.Version
	}
	return versions, nil
}

// --- administration ---

func administer(run func(context.Context, *kadm.Client, question) (answer, error)) command {
	return func(ctx context.Context, asked question) (answer, error) {
		client, err := kadm.NewOptClient(kgo.SeedBrokers(strings.Split(asked.Bootstrap, ",")...))
		if err != nil {
			return nil, err
		}
		defer client.Close()
		return run(ctx, client, asked)
	}
}

func create(ctx context.Context, client *kadm.Client, asked question) (answer, error) {
	settings := map[string]*string{}
	for name, value := range asked.Settings {
		settings[name] = kadm.StringPtr(value)
	}
	_, err := client.CreateTopic(ctx, int32(asked.Partitions), 1, settings, asked.Topic)
	return nil, err
}

func describe(ctx context.Context, client *kadm.Client, asked question) (answer, error) {
	topics, err := client.ListTopics(ctx, asked.Topic)
	if err != nil {
		return nil, err
	}
	if err := topics.Error(); err != nil {
		return nil, err
	}
	described, err := client.DescribeTopicConfigs(ctx, asked.Topic)
	if err != nil {
		return nil, err
	}
	resource, err := described.On(asked.Topic, nil)
	if err != nil {
		return nil, err
	}
	if resource.Err != nil {
		return nil, resource.Err
	}
	settings := map[string]string{}
	for _, each := range resource.Configs {
		settings[each.Key] = each.MaybeValue()
	}
	return answer{"partitions": len(topics[asked.Topic].Partitions), "settings": settings}, nil
}

func alter(ctx context.Context, client *kadm.Client, asked question) (answer, error) {
	var changes []kadm.AlterConfig
	for name, value := range asked.Settings {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: kadm.StringPtr(value)})
	}
	altered, err := client.AlterTopicConfigs(ctx, changes, asked.Topic)
	if err != nil {
		return nil, err
	}
	resource, err := altered.On(asked.Topic, nil)
	if err != nil {
		return nil, err
	}
	return nil, resource.Err
}

func addPartitions(ctx context.Context, client *kadm.Client, asked question) (answer, error) {
	added, err := client.UpdatePartitions(ctx, asked.Partitions, asked.Topic)
	if err != nil {
		return nil, err
	}
	return nil, added.Error()
}

func deleteTopic(ctx context.Context, client *kadm.Client, asked question) (answer, error) {
	deleted, err := client.DeleteTopics(ctx, asked.Topic)
	if err != nil {
		return nil, err
	}
	return nil, deleted.Error()
}

func deleteRecords(ctx context.Context, client *kadm.Client, asked question) (answer, error) {
	var before kadm.Offsets
	before.Add(kadm.Offset{Topic: asked.Topic, Partition: asked.Partition, At: asked.Offset, LeaderEpoch: -1})
	deleted, err := client.DeleteRecords(ctx, before)
	if err != nil {
		return nil, err
	}
	return nil, deleted.Error()
}

// --- producing ---

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

func produce(ctx context.Context, asked question) (answer, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(asked.Bootstrap, ",")...),
		kgo.ProducerBatchCompression(codecs[asked.Codec]),
		kgo.RequiredAcks(acks[asked.Acks]),
	}
	if !asked.Idempotent {
		// An idempotent client chooses by itself how many requests it has in flight.
		options = append(
			options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(asked.InFlightMax),
		)
	}
	if asked.BatchBytes > 0 {
		options = append(options, kgo.ProducerBatchMaxBytes(asked.BatchBytes))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, len(asked.Messages))
	for i, message := range asked.Messages {
		records[i] = &kgo.Record{Topic: asked.Topic, Key: message.Key, Value: message.Value}
	}
	return nil, client.ProduceSync(ctx, records...).FirstErr()
}

// --- consuming ---

func consumeFrom(ctx context.Context, asked question) (answer, error) {
	return consume(ctx, asked, kgo.NewOffset().At(asked.Offset))
}

func consumeSince(ctx context.Context, asked question) (answer, error) {
	return consume(ctx, asked, kgo.NewOffset().AfterMilli(asked.Timestamp))
}

func consume(ctx context.Context, asked question, start kgo.Offset) (answer, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(asked.Bootstrap, ",")...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: {asked.Partition: start}}),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var found []record
	for len(found) < asked.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records came: %w", len(found), asked.Count, err)
		}
		fetches.EachRecord(func(each *kgo.Record) {
			found = append(found, record{each.Offset, each.Timestamp.UnixMilli(), each.Key, each.Value})
		})
	}
	return answer{"records": found}, nil
}
