package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	pollTime   = 100 * time.Millisecond
	heartbeat  = 200 * time.Millisecond
	autoCommit = 200 * time.Millisecond
	fetchWait  = 500 * time.Millisecond
)

// --- operators ---

func describeGroup(ctx context.Context, client *kadm.Client, asked question) (answer, error) {
	listed, err := client.ListGroups(ctx)
	if err != nil {
		return nil, err
	}
	described, err := client.DescribeGroups(ctx, asked.Group)
	if err != nil {
		return nil, err
	}
	found := described[asked.Group]
	if found.Err != nil {
		return nil, found.Err
	}
	offsets, err := client.FetchOffsets(ctx, asked.Group)
	if err != nil {
		return nil, err
	}
	committed := map[string]int64{}
	offsets.Each(func(each kadm.OffsetResponse) {
		if each.Topic == asked.Topic {
			committed[fmt.Sprint(each.Partition)] = each.At
		}
	})
	_, isListed := listed[asked.Group]
	return answer{
		"is_listed": isListed, "state": found.State, "members": len(found.Members), "committed": committed,
	}, nil
}

func resetGroup(ctx context.Context, client *kadm.Client, asked question) (answer, error) {
	var wanted kadm.Offsets
	wanted.Add(kadm.Offset{Topic: asked.Topic, Partition: asked.Partition, At: asked.Offset, LeaderEpoch: -1})
	moved, err := client.CommitOffsets(ctx, asked.Group, wanted)
	if err != nil {
		return nil, err
	}
	return nil, moved.Error()
}

func deleteGroupOffsets(ctx context.Context, client *kadm.Client, asked question) (answer, error) {
	var unwanted kadm.TopicsSet
	unwanted.Add(asked.Topic, asked.Partition)
	deleted, err := client.DeleteOffsets(ctx, asked.Group, unwanted)
	if err != nil {
		return nil, err
	}
	return nil, deleted.Error()
}

func deleteGroup(ctx context.Context, client *kadm.Client, asked question) (answer, error) {
	deleted, err := client.DeleteGroup(ctx, asked.Group)
	if err != nil {
		return nil, err
	}
	return nil, deleted.Err
}

// --- members, which stay from one question to the next ---

type member struct {
	client *kgo.Client
	topic  string

	lock    sync.Mutex
	failure error
}

var members = map[int]*member{}

func join(_ context.Context, asked question) (answer, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(asked.Bootstrap, ",")...),
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(heartbeat),
		// What is paused and resumed is asked for when the fetch that is under way has been answered.
		kgo.FetchMaxWait(fetchWait),
	}
	if asked.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if asked.Instance != "" {
		options = append(options, kgo.InstanceID(asked.Instance))
	}
	if asked.IsAuto {
		options = append(options, kgo.AutoCommitInterval(autoCommit))
	} else {
		options = append(options, kgo.DisableAutoCommit())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	number := len(members) + 1
	members[number] = &member{client: client, topic: asked.Topic}
	return answer{"member": number}, nil
}

func asMember(run func(context.Context, *member, question) (answer, error)) command {
	return func(ctx context.Context, asked question) (answer, error) {
		return run(ctx, members[asked.Member], asked)
	}
}

func poll(ctx context.Context, self *member, _ question) (answer, error) {
	moment, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	fetches := self.client.PollFetches(moment)
	if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	places := [][2]int64{}
	fetches.EachRecord(func(each *kgo.Record) {
		places = append(places, [2]int64{int64(each.Partition), each.Offset})
	})
	self.lock.Lock()
	defer self.lock.Unlock()
	return answer{"places": places}, self.failure
}

func commit(ctx context.Context, self *member, _ question) (answer, error) {
	return nil, self.client.CommitUncommittedOffsets(ctx)
}

func commitAsync(_ context.Context, self *member, _ question) (answer, error) {
	done := func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
		self.lock.Lock()
		defer self.lock.Unlock()
		self.failure = err
	}
	self.client.CommitOffsets(context.Background(), self.client.UncommittedOffsets(), done)
	return nil, nil
}

func seek(_ context.Context, self *member, asked question) (answer, error) {
	self.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{
		self.topic: {asked.Partition: {Epoch: -1, Offset: asked.Offset}},
	})
	return nil, nil
}

func pause(_ context.Context, self *member, asked question) (answer, error) {
	self.client.PauseFetchPartitions(map[string][]int32{self.topic: {asked.Partition}})
	return nil, nil
}

func resume(_ context.Context, self *member, asked question) (answer, error) {
	self.client.ResumeFetchPartitions(map[string][]int32{self.topic: {asked.Partition}})
	return nil, nil
}

func leave(_ context.Context, self *member, _ question) (answer, error) {
	self.client.Close()
	return nil, nil
}
