#include <gtest/gtest.h>

#include "net/grpc_testing.hpp"

namespace fairlead::net {
namespace {

using grpc::ServerCall;
using grpc::StatusCode;
using testing::GrpcPair;
using testing::Recorder;

constexpr std::size_t kMessages = 50'000;

Task<> flood(ServerCall& call) {
  for (std::size_t i = 0; i < kMessages; ++i) {
    call.write("0123456789");
  }
  call.finish({});
  co_return;
}

// One message a turn: the observer pauses inside each message and resumes in the next turn, so
// nothing more may come in between, whatever was received already.
TEST(GrpcPause, HoldsBackMessagesThatWereReceivedAlready) {
  GrpcPair pair;
  pair.service.add("/t.T/Flood", flood);
  Recorder recorder;
  std::unique_ptr<grpc::Call> call;
  recorder.keep = false;
  recorder.hook = [&] { call->pause(); };
  call = pair.start("/t.T/Flood", "", recorder);
  ASSERT_TRUE(pair.until([&] { return recorder.count == 1; }));
  for (std::size_t expected = 2; expected < 200; ++expected) {
    pair.reactor.post([&] { call->resume(); });
    ASSERT_TRUE(pair.until([&] { return recorder.count == expected; }));
    pair.reactor.run_turn(std::chrono::milliseconds(0));
    ASSERT_EQ(recorder.count, expected);
  }
  EXPECT_EQ(recorder.ends, 0);
  recorder.hook = nullptr;
  pair.reactor.post([&] { call->resume(); });
  ASSERT_TRUE(pair.until([&] { return recorder.ends == 1; }));
  EXPECT_EQ(recorder.count, kMessages);
  EXPECT_TRUE(recorder.status.ok());
  pair.drop(call);
}

Task<> short_answer(ServerCall& call) {
  for (int i = 0; i < 100; ++i) {
    call.write("x");
  }
  call.finish({StatusCode::Aborted, "after a hundred"});
  co_return;
}

TEST(GrpcPause, TheEndWaitsForWhatIsHeld) {
  GrpcPair pair;
  pair.service.add("/t.T/Short", short_answer);
  Recorder recorder;
  std::unique_ptr<grpc::Call> call;
  recorder.hook = [&] { call->pause(); };
  call = pair.start("/t.T/Short", "", recorder);
  for (std::size_t expected = 1; expected <= 100; ++expected) {
    ASSERT_TRUE(pair.until([&] { return recorder.count == expected; }));
    EXPECT_EQ(recorder.ends, expected == 100 ? 1 : 0);
    pair.reactor.post([&] { call->resume(); });
  }
  EXPECT_EQ(recorder.status.code, StatusCode::Aborted);
  EXPECT_EQ(recorder.count, 100u);
  pair.drop(call);
}

}  // namespace
}  // namespace fairlead::net
