#include "fleet/resolver.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "net/testing.hpp"

namespace fairlead::fleet {
namespace {

using Answer = Result<std::vector<net::Address>>;

net::Task<> resolve_into(Resolver& resolver, std::string host, std::optional<Answer>& out) {
  out = co_await resolver.resolve(std::move(host), 50051);
}

TEST(ThreadResolving, NumericHostsNeedNoLookUp) {
  net::Reactor reactor;
  ThreadResolver resolver(reactor);
  for (const char* host : {"127.0.0.1", "::1"}) {
    std::optional<Answer> answer;
    net::testing::run_task(reactor, resolve_into(resolver, host, answer));
    ASSERT_TRUE(answer && *answer);
    EXPECT_EQ((*answer)->size(), 1U);
    EXPECT_EQ((*answer)->front().port(), 50051);
  }
}

TEST(ThreadResolving, NamesAreLookedUpBesideTheReactor) {
  net::Reactor reactor;
  ThreadResolver resolver(reactor);
  std::optional<Answer> answer;
  net::testing::run_task(reactor, resolve_into(resolver, "localhost", answer));
  ASSERT_TRUE(answer && *answer) << answer->error().message;
  EXPECT_FALSE((*answer)->empty());
}

TEST(ThreadResolving, UnknownNamesAreErrorsThatNameTheHost) {
  net::Reactor reactor;
  ThreadResolver resolver(reactor);
  std::optional<Answer> answer;
  net::testing::run_task(reactor, resolve_into(resolver, "no-such-host.invalid", answer));
  ASSERT_TRUE(answer);
  ASSERT_FALSE(*answer);
  EXPECT_NE(answer->error().message.find("no-such-host.invalid"), std::string::npos);
}

TEST(ThreadResolving, ManyLookUpsAtATimeAllEnd) {
  net::Reactor reactor;
  ThreadResolver resolver(reactor);
  std::vector<std::optional<Answer>> answers(ThreadResolver::kMaxThreads * 3);
  net::TaskGroup group;
  bool started = false;
  reactor.post([&] {
    for (std::optional<Answer>& answer : answers) {
      group.spawn(resolve_into(resolver, "localhost", answer));
    }
    started = true;
  });
  ASSERT_TRUE(net::testing::run_until(reactor, [&] { return started && group.size() == 0; }));
  for (const std::optional<Answer>& answer : answers) {
    EXPECT_TRUE(answer && *answer);
  }
}

TEST(ThreadResolving, AForgottenLookUpHarmsNothing) {
  net::Reactor reactor;
  {
    ThreadResolver resolver(reactor);
    std::optional<Answer> answer;
    net::TaskGroup group;
    bool done = false;
    reactor.post([&] {
      group.spawn(resolve_into(resolver, "localhost", answer));
      group.cancel();
      done = true;
    });
    ASSERT_TRUE(net::testing::run_until(reactor, [&] { return done; }));
    EXPECT_FALSE(answer);
  }
  // The resolver is gone before its helper may have answered; the reactor goes on.
  ThreadResolver another(reactor);
  std::optional<Answer> answer;
  net::testing::run_task(reactor, resolve_into(another, "localhost", answer));
  EXPECT_TRUE(answer && *answer);
}

}  // namespace
}  // namespace fairlead::fleet
