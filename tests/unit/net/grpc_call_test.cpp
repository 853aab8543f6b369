#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "net/event.hpp"
#include "net/grpc_testing.hpp"
#include "net/handlers.hpp"

namespace fairlead::net::grpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::GrpcPair;
using testing::Recorder;
using testing::with;

Task<> echo(ServerCall& call) {
  call.write(call.request());
  call.finish({});
  co_return;
}

// Sends the request's first byte as many messages, of growing size, over several turns.
Task<> count_up(ServerCall& call) {
  const int total = static_cast<unsigned char>(call.request()[0]);
  for (int i = 0; i < total; ++i) {
    call.write(std::string(static_cast<std::size_t>(i) * 37, static_cast<char>('a' + i % 26)));
    if (i % 3 == 0) {
      co_await Sleep(milliseconds(1));
    }
  }
  call.finish({StatusCode::Ok, {}});
}

struct Gone {
  explicit Gone(int& c) : count(c) {}
  Gone(const Gone&) = delete;
  Gone& operator=(const Gone&) = delete;
  ~Gone() { ++count; }
  int& count;
};

class GrpcCut : public ::testing::TestWithParam<std::size_t> {};

TEST_P(GrpcCut, UnaryAndStreamingAreTheSameHoweverBytesAreCut) {
  GrpcPair pair(GetParam());
  pair.service.add("/t.T/Echo", echo);
  pair.service.add("/t.T/Count", count_up);
  Recorder unary;
  Recorder streaming;
  const std::string request(1000, 'x');
  auto first = pair.start("/t.T/Echo", request, unary);
  auto second = pair.start("/t.T/Count", std::string(1, '\x28'), streaming);
  ASSERT_TRUE(pair.until([&] { return unary.ends == 1 && streaming.ends == 1; }));
  EXPECT_TRUE(unary.status.ok()) << unary.status.message;
  ASSERT_EQ(unary.messages.size(), 1u);
  EXPECT_EQ(unary.messages[0], request);
  EXPECT_TRUE(streaming.status.ok()) << streaming.status.message;
  ASSERT_EQ(streaming.messages.size(), 40u);
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(streaming.messages[i], std::string(i * 37, static_cast<char>('a' + i % 26)));
  }
  EXPECT_EQ(pair.channel->calls(), 0u);
  EXPECT_EQ(pair.channel->connections(), 1u);
  EXPECT_EQ(pair.server->in_flight(), 0u);
  pair.drop(first);
  pair.drop(second);
}

INSTANTIATE_TEST_SUITE_P(EveryCut, GrpcCut,
                         ::testing::Values(0, 1, 2, 3, 4, 5, 6, 7, 9, 13, 64, 1000));

TEST(GrpcCall, StatusTextMetadataAndTrailersOnlySurvive) {
  GrpcPair pair;
  std::string seen;
  pair.service.add("/t.T/Fail",
                   with(
                       [](ServerCall& call, std::string& seen) -> Task<> {
                         seen = std::string(call.metadata("x-id").value_or("none")) + "|" +
                                std::string(call.metadata("x-raw-bin").value_or("none"));
                         call.finish({StatusCode::FailedPrecondition, "naïve 100% — \n失敗"});
                         co_return;
                       },
                       seen));
  Recorder recorder;
  auto call = pair.start("/t.T/Fail", "", recorder,
                         {{"x-id", "abc"},
                          {"x-raw-bin", std::string("\0\xff\x01", 3)},
                          {"Bad Name", "dropped"},
                          {"x-bad", "new\nline"}});
  ASSERT_TRUE(pair.until([&] { return recorder.ends == 1; }));
  EXPECT_EQ(recorder.status.code, StatusCode::FailedPrecondition);
  EXPECT_EQ(recorder.status.message, "naïve 100% — \n失敗");
  EXPECT_EQ(recorder.status.origin, Status::Origin::Server);
  EXPECT_EQ(seen, "abc|AP8B");
  EXPECT_EQ(recorder.count, 0u);
  pair.drop(call);
}

// Gives its call up at the third message, as an engine's client does that cannot read an answer.
struct Quitter final : CallObserver {
  void on_message(std::string_view) override {
    if (++count == 3) {
      (*call)->give_up();
    }
  }
  void on_end(const Status&) override { ++ends; }

  std::unique_ptr<Call>* call = nullptr;
  int count = 0;
  int ends = 0;
};

TEST(GrpcCall, GivenUpInsideAnEventItSaysNothingMore) {
  for (const std::size_t cut : {std::size_t{0}, std::size_t{1}, std::size_t{64}}) {
    GrpcPair pair(cut);
    pair.service.add("/t.T/Echo", echo);
    pair.service.add("/t.T/Count", count_up);
    auto observer = std::make_unique<Quitter>();
    std::unique_ptr<Call> call;
    observer->call = &call;
    pair.run(
        [&] { call = pair.channel->start("/t.T/Count", {}, std::string(1, '\x28'), *observer); });
    ASSERT_TRUE(pair.until([&] { return observer->count == 3; }));
    EXPECT_EQ(pair.channel->calls(), 0u);
    EXPECT_EQ(observer->ends, 0);
    observer.reset();  // while the call is still there
    Recorder later;
    auto second = pair.start("/t.T/Echo", "x", later);
    ASSERT_TRUE(pair.until([&] { return later.ends == 1 && pair.server->in_flight() == 0; }));
    EXPECT_TRUE(later.status.ok()) << "the connection goes on";
    EXPECT_EQ(pair.channel->connections(), 1u);
    pair.drop(second);
    pair.run([&] { call.reset(); });
  }
}

TEST(GrpcCall, UnknownMethodsAreUnimplemented) {
  GrpcPair pair;
  Recorder recorder;
  auto call = pair.start("/t.T/None", "x", recorder);
  ASSERT_TRUE(pair.until([&] { return recorder.ends == 1; }));
  EXPECT_EQ(recorder.status.code, StatusCode::Unimplemented);
  EXPECT_EQ(recorder.status.origin, Status::Origin::Server);
  pair.drop(call);
}

TEST(GrpcCall, UnaryHelperWantsExactlyOneMessage) {
  GrpcPair pair;
  pair.service.add("/t.T/Echo", echo);
  pair.service.add("/t.T/Count", count_up);
  std::string answer;
  StatusCode two = StatusCode::Ok;
  StatusCode none = StatusCode::Ok;
  testing::run_task(
      pair.reactor,
      [](GrpcPair& p, std::string& out, StatusCode& many, StatusCode& empty) -> Task<> {
        const TimePoint deadline = p.reactor.now() + seconds(10);
        out = *co_await p.channel->unary("/t.T/Echo", {}, "hello", deadline);
        many = (co_await p.channel->unary("/t.T/Count", {}, std::string(1, '\2'), deadline))
                   .error()
                   .code;
        empty = (co_await p.channel->unary("/t.T/Count", {}, std::string(1, '\0'), deadline))
                    .error()
                    .code;
      }(pair, answer, two, none));
  EXPECT_EQ(answer, "hello");
  EXPECT_EQ(two, StatusCode::Internal);
  EXPECT_EQ(none, StatusCode::Internal);
}

TEST(GrpcCall, TwentyMegabytesBothWays) {
  GrpcPair pair;
  pair.service.add("/t.T/Echo", echo);
  std::string big(20 * 1024 * 1024, '\0');
  for (std::size_t i = 0; i < big.size(); ++i) {
    big[i] = static_cast<char>(i * 2654435761u >> 13);
  }
  Recorder recorder;
  auto call = pair.start("/t.T/Echo", big, recorder);
  ASSERT_TRUE(pair.until([&] { return recorder.ends == 1; }));
  EXPECT_TRUE(recorder.status.ok()) << recorder.status.message;
  ASSERT_EQ(recorder.messages.size(), 1u);
  EXPECT_TRUE(recorder.messages[0] == big);
  pair.drop(call);
}

TEST(GrpcCall, MessagesAboveTheLimitsEndTheCall) {
  ChannelOptions options;
  options.max_message_bytes = 1000;
  http::ServerLimits limits;
  limits.body_bytes = 600;
  GrpcPair pair(0, options, limits);
  pair.service.limit_requests(400);
  pair.service.add("/t.T/Count", count_up);
  pair.service.add("/t.T/Echo", echo);
  Recorder answer_too_large;
  Recorder request_too_large;
  Recorder above_service;
  Recorder above_server;
  auto a = pair.start("/t.T/Count", std::string(1, '\x28'), answer_too_large);
  auto b = pair.start("/t.T/Echo", std::string(1001, 'x'), request_too_large);
  auto c = pair.start("/t.T/Echo", std::string(500, 'x'), above_service);
  auto d = pair.start("/t.T/Echo", std::string(900, 'x'), above_server);
  ASSERT_TRUE(pair.until([&] {
    return answer_too_large.ends && request_too_large.ends && above_service.ends &&
           above_server.ends;
  }));
  EXPECT_EQ(answer_too_large.status.code, StatusCode::ResourceExhausted);
  EXPECT_EQ(answer_too_large.status.origin, Status::Origin::Client);
  EXPECT_EQ(answer_too_large.count, 28u);
  EXPECT_EQ(request_too_large.status.code, StatusCode::ResourceExhausted);
  EXPECT_EQ(above_service.status.code, StatusCode::OutOfRange);
  EXPECT_EQ(above_service.status.message,
            "Error, decoded message length too large: found 500 bytes, the limit is: 400 bytes");
  EXPECT_EQ(above_server.status.code, StatusCode::ResourceExhausted);
  EXPECT_EQ(above_server.status.message,
            "Error, decoded message length too large: found 900 bytes, the limit is: 600 bytes");
  EXPECT_TRUE(pair.until([&] { return pair.server->in_flight() == 0; }));
  EXPECT_EQ(pair.channel->connections(), 1u);
  pair.run([&] { a.reset(), b.reset(), c.reset(), d.reset(); });
}

TEST(GrpcCall, DestroyingACallEndsItsHandler) {
  GrpcPair pair;
  int gone = 0;
  pair.service.add("/t.T/Wait", with(
                                    [](ServerCall& call, int& gone) -> Task<> {
                                      const Gone guard(gone);
                                      call.write("started");
                                      Event never;
                                      co_await never.wait();
                                    },
                                    gone));
  Recorder recorder;
  auto call = pair.start("/t.T/Wait", "x", recorder);
  ASSERT_TRUE(pair.until([&] { return recorder.count == 1; }));
  EXPECT_EQ(pair.server->in_flight(), 1u);
  pair.drop(call);
  ASSERT_TRUE(pair.until([&] { return gone == 1; }));
  EXPECT_EQ(pair.server->in_flight(), 0u);
  EXPECT_EQ(pair.server->counters().clients_gone.load(), 1u);
  EXPECT_EQ(recorder.ends, 0);
  EXPECT_EQ(pair.channel->calls(), 0u);
}

TEST(GrpcCall, ACallDestroyedBeforeItLeftIsNeverSeen) {
  GrpcPair pair;
  pair.service.add("/t.T/Echo", echo);
  Recorder first;
  auto warm = pair.start("/t.T/Echo", "x", first);
  ASSERT_TRUE(pair.until([&] { return first.ends == 1; }));
  Recorder recorder;
  pair.run([&] {
    auto call = pair.channel->start("/t.T/Echo", {}, "x", recorder);
    call.reset();
  });
  Recorder last;
  auto after = pair.start("/t.T/Echo", "y", last);
  ASSERT_TRUE(pair.until([&] { return last.ends == 1; }));
  EXPECT_TRUE(last.status.ok()) << last.status.message;
  EXPECT_EQ(pair.server->counters().requests_total.load(), 2u);
  EXPECT_EQ(recorder.ends, 0);
  pair.run([&] { warm.reset(), after.reset(); });
}

TEST(GrpcCall, DeadlinesEndBothSides) {
  GrpcPair pair;
  int gone = 0;
  pair.service.add("/t.T/Wait", with(
                                    [](ServerCall&, int& gone) -> Task<> {
                                      const Gone guard(gone);
                                      Event never;
                                      co_await never.wait();
                                    },
                                    gone));
  Recorder recorder;
  auto call = pair.start("/t.T/Wait", "x", recorder, {}, milliseconds(50));
  ASSERT_TRUE(pair.until([&] { return recorder.ends == 1 && gone == 1; }));
  EXPECT_EQ(recorder.status.code, StatusCode::DeadlineExceeded);
  Recorder late;
  auto past = pair.start("/t.T/Wait", "x", late, {}, milliseconds(-1));
  ASSERT_TRUE(pair.until([&] { return late.ends == 1; }));
  EXPECT_EQ(late.status.code, StatusCode::DeadlineExceeded);
  EXPECT_EQ(late.status.origin, Status::Origin::Client);
  EXPECT_EQ(pair.server->counters().requests_total.load(), 1u);
  pair.run([&] { call.reset(), past.reset(); });
}

TEST(GrpcCall, OtherCallsAndTheChannelMayBeDestroyedInsideACallback) {
  GrpcPair pair;
  pair.service.add("/t.T/Count", count_up);
  Recorder victim;
  Recorder killer;
  auto doomed = pair.start("/t.T/Count", std::string(1, '\x40'), victim);
  killer.hook = [&] { doomed.reset(); };
  auto call = pair.start("/t.T/Count", std::string(1, '\x10'), killer);
  ASSERT_TRUE(pair.until([&] { return killer.ends == 1; }));
  EXPECT_EQ(victim.ends, 0);
  EXPECT_LT(victim.count, 64u);
  Recorder last;
  last.hook = [&] { pair.channel.reset(); };
  auto final_call = pair.start("/t.T/Count", std::string(1, '\x10'), last);
  ASSERT_TRUE(pair.until([&] { return pair.channel == nullptr; }));
  ASSERT_TRUE(pair.until([&] { return pair.server->connections() == 0; }));
  EXPECT_EQ(last.ends, 0);
  EXPECT_EQ(last.count, 1u);
  pair.run([&] { call.reset(), final_call.reset(); });
}

TEST(GrpcCall, OneStuckReaderDoesNotStallItsNeighbours) {
  ChannelOptions options;
  options.stream_window_bytes = 64 * 1024;
  GrpcPair pair(0, options);
  constexpr int kMessages = 2000;
  pair.service.add("/t.T/Flood", [](ServerCall& call) -> Task<> {
    const std::string message(1000, 'm');
    Event drained;
    call.exchange().set_on_drain([&] { drained.set(); });
    for (int i = 0; i < kMessages; ++i) {
      call.write(message);
      if (call.exchange().unsent() > 300 * 1024) {
        drained.reset();
        co_await drained.wait();
      }
    }
    call.finish({});
  });
  std::vector<std::unique_ptr<Recorder>> recorders;
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 64; ++i) {
    recorders.push_back(std::make_unique<Recorder>());
    recorders.back()->keep = false;
    calls.push_back(pair.start("/t.T/Flood", "x", *recorders.back()));
    if (i == 7) {
      pair.run([&] { calls.back()->pause(); });
    }
  }
  ASSERT_TRUE(pair.until([&] {
    return std::ranges::count_if(recorders, [](const auto& r) { return r->ends == 1; }) == 63;
  }));
  EXPECT_EQ(pair.channel->connections(), 1u);
  for (int i = 0; i < 64; ++i) {
    if (i != 7) {
      EXPECT_TRUE(recorders[static_cast<std::size_t>(i)]->status.ok());
      EXPECT_EQ(recorders[static_cast<std::size_t>(i)]->count, std::size_t{kMessages});
    }
  }
  EXPECT_EQ(recorders[7]->ends, 0);
  EXPECT_LE(recorders[7]->bytes, 96u * 1024);
  pair.run([&] { calls[7]->resume(); });
  ASSERT_TRUE(pair.until([&] { return recorders[7]->ends == 1; }));
  EXPECT_EQ(recorders[7]->count, std::size_t{kMessages});
  pair.run([&] { calls.clear(); });
}

}  // namespace
}  // namespace fairlead::net::grpc
