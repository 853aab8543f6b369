#include "routing/policy_classes.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace fairlead::routing {
namespace {

constexpr std::string_view kFile = R"(
default_policy_family: standard
uncached_isl_buckets:
  - min_tokens: 0
    bucket: warm
  - min_tokens: 3072
    bucket: cold
policy_classes:
  - name: warm
    policy_family: standard
    cache_bucket: warm
    queue_policy: wspt
    quantum: 2048
    prefill_busy_threshold_frac: 16
    request_queue_limit_per_worker: 1024
    cached_token_queue_limit_per_worker: 2097152
  - {name: cold, policy_family: standard, cache_bucket: cold, quantum: 512,
     prefill_busy_threshold: 4096, busy_worker_ratio: 0.95,
     raw_isl_token_queue_limit_per_worker: 1048576}
  - {name: fast_cold, policy_family: fast, cache_bucket: cold, quantum: 1, queue_policy: lcfs}
  - {name: fast_warm, policy_family: fast, cache_bucket: warm, quantum: 1}
  - name: batch      # no family: chosen by its own name only
    quantum: 7
models:
  example/large:
    default_policy_family: only
    uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
    policy_classes: [{name: one, policy_family: only, cache_bucket: all, quantum: 1}]
)";

std::string error_of(std::string_view text) {
  const auto config = PolicyConfig::parse(text, {});
  if (config) {
    return "accepted";
  }
  EXPECT_EQ(config.error().code, ErrorCode::InvalidRequest);
  return config.error().message;
}

std::string class_of(const PolicyProfile& profile, std::string_view requested,
                     std::uint32_t uncached) {
  return profile.classes()[profile.classify(requested, uncached)].name;
}

TEST(PolicyClasses, ReadsEveryField) {
  const auto config = PolicyConfig::parse(kFile, {});
  ASSERT_TRUE(config) << config.error().message;
  const auto classes = config->profile("any")->classes();
  ASSERT_EQ(classes.size(), 5u);
  const PolicyClass& warm = classes[0];
  EXPECT_EQ(warm.name, "warm");
  EXPECT_EQ(warm.policy, QueuePolicy::Wspt);
  EXPECT_EQ(warm.quantum, 2048u);
  EXPECT_FALSE(warm.prefill_busy_threshold);
  EXPECT_EQ(warm.prefill_busy_threshold_frac, 16.0);
  EXPECT_FALSE(warm.busy_worker_ratio);
  EXPECT_EQ(warm.request_queue_limit_per_worker, 1024u);
  EXPECT_FALSE(warm.raw_isl_token_queue_limit_per_worker);
  EXPECT_EQ(warm.cached_token_queue_limit_per_worker, 2'097'152u);
  EXPECT_TRUE(warm.queues());
  const PolicyClass& cold = classes[1];
  EXPECT_EQ(cold.policy, QueuePolicy::Fcfs) << "the default";
  EXPECT_EQ(cold.prefill_busy_threshold, 4096u);
  EXPECT_EQ(cold.busy_worker_ratio, 0.95);
  EXPECT_EQ(cold.raw_isl_token_queue_limit_per_worker, 1'048'576u);
  EXPECT_EQ(classes[2].policy, QueuePolicy::Lcfs);
  EXPECT_FALSE(classes[4].queues());
}

TEST(PolicyClasses, HeaderAndUncachedTokensGiveTheClass) {
  const auto config = PolicyConfig::parse(kFile, {});
  ASSERT_TRUE(config);
  const PolicyProfile& profile = *config->profile("any");
  EXPECT_EQ(class_of(profile, "", 0), "warm");
  EXPECT_EQ(class_of(profile, "", 3071), "warm");
  EXPECT_EQ(class_of(profile, "", 3072), "cold");
  EXPECT_EQ(class_of(profile, "standard", 4'000'000'000), "cold");
  EXPECT_EQ(class_of(profile, "fast", 0), "fast_warm");
  EXPECT_EQ(class_of(profile, "fast", 5000), "fast_cold");
  EXPECT_EQ(class_of(profile, "batch", 0), "batch");
  EXPECT_EQ(class_of(profile, "batch", 5000), "batch");
  EXPECT_EQ(class_of(profile, "fast_warm", 5000), "cold") << "no way past the buckets";
  EXPECT_EQ(class_of(profile, "Fast", 0), "warm") << "names are exact";
}

TEST(PolicyClasses, AModelsProfileReplacesTheRootWholly) {
  const auto config = PolicyConfig::parse(kFile, {});
  ASSERT_TRUE(config);
  const PolicyProfile& large = *config->profile("example/large");
  ASSERT_EQ(large.classes().size(), 1u);
  EXPECT_EQ(class_of(large, "batch", 9999), "one");
  EXPECT_EQ(config->profile("example/larg"), config->profile("x"));
  const auto only_models = PolicyConfig::parse(
      R"({"models": {"m": {"default_policy_family": "f",
          "uncached_isl_buckets": [{"min_tokens": 0, "bucket": "b"}],
          "policy_classes": [{"name": "c", "policy_family": "f", "cache_bucket": "b",
                              "quantum": 3}]}}})",
      {.threshold = 2.0, .policy = QueuePolicy::Wspt});
  ASSERT_TRUE(only_models) << only_models.error().message;
  EXPECT_EQ(only_models->profile("m")->classes()[0].quantum, 3u);
  const PolicyClass& others = only_models->profile("other")->classes()[0];
  EXPECT_EQ(others.name, "default") << "by the flags";
  EXPECT_EQ(others.prefill_busy_threshold_frac, 2.0);
  EXPECT_EQ(others.policy, QueuePolicy::Wspt);
}

TEST(PolicyClasses, WithoutAFileTheFlagsMakeOneClass) {
  const PolicyConfig off{QueueOptions{}};
  const PolicyProfile& profile = *off.profile("m");
  ASSERT_EQ(profile.classes().size(), 1u);
  EXPECT_FALSE(profile.classes()[0].queues());
  EXPECT_EQ(class_of(profile, "anything", 99999), "default");
  EXPECT_TRUE(validate(QueueOptions{}));
  EXPECT_TRUE(validate({.threshold = 0.0}));
  EXPECT_EQ(validate({.threshold = -1.0}).error().message,
            "--router-queue-threshold: expected a finite number from 0");
  EXPECT_FALSE(validate({.threshold = std::numeric_limits<double>::quiet_NaN()}));
  EXPECT_EQ(validate({.limit = 0}).error().message, "--router-queue-limit: expected at least 1");
  EXPECT_EQ(parse_queue_policy("fcfs"), QueuePolicy::Fcfs);
  EXPECT_EQ(parse_queue_policy("FCFS"), std::nullopt);
}

TEST(PolicyClasses, BusyIsBeyondEitherThreshold) {
  const PolicyClass none;
  EXPECT_FALSE(target_busy(none, 1'000'000'000, 1));
  const PolicyClass absolute{.name = "a", .prefill_busy_threshold = 100};
  EXPECT_FALSE(target_busy(absolute, 100, 1));
  EXPECT_TRUE(target_busy(absolute, 101, 1));
  EXPECT_FALSE(target_busy(absolute, -5, 1));
  const PolicyClass frac{.name = "f", .prefill_busy_threshold_frac = 1.5};
  EXPECT_FALSE(target_busy(frac, 12'288, 8192));
  EXPECT_TRUE(target_busy(frac, 12'289, 8192));
  EXPECT_FALSE(target_busy(frac, 15'000'000, 0)) << "the engine names no figure";
  EXPECT_TRUE(target_busy(frac, 15'000'001, 0));
  const PolicyClass both{
      .name = "b", .prefill_busy_threshold = 100, .prefill_busy_threshold_frac = 0.001};
  EXPECT_TRUE(target_busy(both, 9, 8192));
  EXPECT_TRUE(target_busy(both, 101, 1'000'000));
  EXPECT_FALSE(target_busy(both, 8, 8192));
}

TEST(PolicyClasses, AllOrAShareOfTheTargetsMustBeBusy) {
  const PolicyClass all{.name = "a", .prefill_busy_threshold = 1};
  EXPECT_FALSE(pool_busy(all, 0, 0)) << "the choice says that there are none";
  EXPECT_FALSE(pool_busy(all, 127, 128));
  EXPECT_TRUE(pool_busy(all, 128, 128));
  EXPECT_FALSE(pool_busy(PolicyClass{}, 5, 5)) << "the class never waits";
  const PolicyClass most{.name = "m", .prefill_busy_threshold = 1, .busy_worker_ratio = 0.95};
  EXPECT_FALSE(pool_busy(most, 121, 128));
  EXPECT_TRUE(pool_busy(most, 122, 128));
  EXPECT_FALSE(pool_busy(most, 1, 2));
  EXPECT_TRUE(pool_busy(most, 2, 2));
  // 0.56 * 25 is 14.000000000000002.
  const PolicyClass odd{.name = "o", .prefill_busy_threshold = 1, .busy_worker_ratio = 0.56};
  EXPECT_TRUE(pool_busy(odd, 14, 25));
  EXPECT_FALSE(pool_busy(odd, 13, 25));
}

// A file of one class whose lines can be replaced.
struct Lines {
  std::string head = "default_policy_family: f\n";
  std::string buckets = "uncached_isl_buckets:\n- {min_tokens: 0, bucket: b}\n";
  std::string name = "- name: c\n";
  std::string place = "  policy_family: f\n  cache_bucket: b\n";
  std::string rest = "  quantum: 1\n";
  std::string tail = {};

  std::string text() const {
    return head + buckets + "policy_classes:\n" + name + place + rest + tail;
  }
};

TEST(PolicyFile, EveryErrorNamesItsField) {
  ASSERT_EQ(error_of(Lines().text()), "accepted");
  constexpr std::string_view kName = "expected 1 to 64 letters, digits, `_`, `.` or `-`";
  const struct {
    std::string text;
    std::string error;
  } cases[] = {
      {"- 1", "expected a mapping, found a list"},
      {"", "expected a mapping, found nothing"},
      {"a: [", "line 2: did not find expected node content while parsing a flow node"},
      {"{}", "policy_classes: missing, and there is no `models` either"},
      {"models: {}", "models: expected at least one model"},
      {"models: 1", "models: expected a mapping, found a whole number"},
      {"models: {m: x}", "models.\"m\": expected a mapping, found text"},
      {"models: {\"a\\nb\": {}}", "models.\"a\\nb\".default_policy_family: missing"},
      {"models: {'': {}}", "models.\"\": expected a name of 1 to 256 bytes"},
      {"models: {m: {models: {}}}", "models.\"m\": unknown field \"models\""},
      {Lines{.tail = "modells: {}\n"}.text(), "unknown field \"modells\""},
      {Lines{.head = ""}.text(), "default_policy_family: missing"},
      {Lines{.head = "default_policy_family: [f]\n"}.text(),
       "default_policy_family: expected text, found a list"},
      {Lines{.head = "default_policy_family: g\n"}.text(),
       "default_policy_family: no class is of the family \"g\""},
      {Lines{.buckets = ""}.text(), "uncached_isl_buckets: missing"},
      {Lines{.buckets = "uncached_isl_buckets: []\n"}.text(),
       "uncached_isl_buckets: expected 1 to 64 elements"},
      {Lines{.buckets = "uncached_isl_buckets: {a: 1}\n"}.text(),
       "uncached_isl_buckets: expected a list, found a mapping"},
      {Lines{.buckets = "uncached_isl_buckets: [7]\n"}.text(),
       "uncached_isl_buckets[0]: expected a mapping, found a whole number"},
      {Lines{.buckets = "uncached_isl_buckets: [{bucket: b}]\n"}.text(),
       "uncached_isl_buckets[0].min_tokens: missing"},
      {Lines{.buckets = "uncached_isl_buckets: [{min_tokens: 0}]\n"}.text(),
       "uncached_isl_buckets[0].bucket: missing"},
      {Lines{.buckets = "uncached_isl_buckets: [{min_tokens: 0, bucket: b, max: 1}]\n"}.text(),
       "uncached_isl_buckets[0]: unknown field \"max\""},
      {Lines{.buckets = "uncached_isl_buckets: [{min_tokens: 1, bucket: b}]\n"}.text(),
       "uncached_isl_buckets[0].min_tokens: expected 0 for the first bucket"},
      {Lines{.buckets = "uncached_isl_buckets: [{min_tokens: -1, bucket: b}]\n"}.text(),
       "uncached_isl_buckets[0].min_tokens: expected 0 to 4294967295"},
      {Lines{.buckets = "uncached_isl_buckets: [{min_tokens: 0, bucket: b},"
                        "{min_tokens: 5, bucket: c}, {min_tokens: 5, bucket: d}]\n"}
           .text(),
       "uncached_isl_buckets[2].min_tokens: expected more than the bucket before"},
      {Lines{.buckets = "uncached_isl_buckets: [{min_tokens: 0, bucket: b},"
                        "{min_tokens: 5, bucket: b}]\n"}
           .text(),
       "uncached_isl_buckets[1].bucket: a second bucket \"b\""},
      {Lines{.buckets = "uncached_isl_buckets: [{min_tokens: 0, bucket: b},"
                        "{min_tokens: 5, bucket: d}]\n"}
           .text(),
       "policy_classes: no class for family \"f\" and bucket \"d\""},
      {Lines{.name = "", .place = "", .rest = ""}.text(),
       "policy_classes: expected a list, found nothing"},
      {Lines{.name = "- name: 5\n"}.text(),
       "policy_classes[0].name: expected text, found a whole number"},
      {Lines{.name = "- name: a b\n"}.text(), fmt::format("policy_classes[0].name: {}", kName)},
      {Lines{.name = "- name: " + std::string(65, 'x') + "\n"}.text(),
       fmt::format("policy_classes[0].name: {}", kName)},
      {Lines{.name = "-\n"}.text(), "policy_classes[0].name: missing"},
      {Lines{.place = "  policy_family: f\n"}.text(),
       "policy_classes[0].cache_bucket: missing: it goes with policy_family"},
      {Lines{.place = "  cache_bucket: b\n"}.text(),
       "policy_classes[0].policy_family: missing: it goes with cache_bucket"},
      {Lines{.place = ""}.text(), "default_policy_family: no class is of the family \"f\""},
      {Lines{.place = "  policy_family: f\n  cache_bucket: x\n"}.text(),
       "policy_classes[0].cache_bucket: no bucket \"x\""},
      {Lines{.place = "  policy_family: f/g\n  cache_bucket: b\n"}.text(),
       fmt::format("policy_classes[0].policy_family: {}", kName)},
      {Lines{.rest = ""}.text(), "policy_classes[0].quantum: missing"},
      {Lines{.rest = "  quantum: 0\n"}.text(),
       "policy_classes[0].quantum: expected 1 to 4294967295"},
      {Lines{.rest = "  quantum: 1.5\n"}.text(),
       "policy_classes[0].quantum: expected a whole number, found a number"},
      {Lines{.rest = "  quantum: 99999999999999999999\n"}.text(),
       "policy_classes[0].quantum: expected a whole number, found a number beyond 64 bits"},
      {Lines{.rest = "  quantum: 1\n  queue_policy: fifo\n"}.text(),
       "policy_classes[0].queue_policy: expected fcfs, lcfs or wspt"},
      {Lines{.rest = "  quantum: 1\n  queue_policy: true\n"}.text(),
       "policy_classes[0].queue_policy: expected text, found true or false"},
      {Lines{.rest = "  quantum: 1\n  quantom: 1\n"}.text(),
       "policy_classes[0]: unknown field \"quantom\""},
      {Lines{.rest = "  quantum: 1\n  quantum: 1\n"}.text(),
       "line 9: the key `quantum` is repeated"},
      {Lines{.rest = "  quantum: 1\n  prefill_busy_threshold: -1\n"}.text(),
       "policy_classes[0].prefill_busy_threshold: expected at least 0"},
      {Lines{.rest = "  quantum: 1\n  prefill_busy_threshold: 1.0\n"}.text(),
       "policy_classes[0].prefill_busy_threshold: expected a whole number, found a number"},
      {Lines{.rest = "  quantum: 1\n  prefill_busy_threshold_frac: -0.1\n"}.text(),
       "policy_classes[0].prefill_busy_threshold_frac: expected a finite number from 0"},
      {Lines{.rest = "  quantum: 1\n  prefill_busy_threshold_frac: .nan\n"}.text(),
       "policy_classes[0].prefill_busy_threshold_frac: expected a finite number from 0"},
      {Lines{.rest = "  quantum: 1\n  prefill_busy_threshold_frac: '16'\n"}.text(),
       "policy_classes[0].prefill_busy_threshold_frac: expected a number, found text"},
      {Lines{.rest = "  quantum: 1\n  prefill_busy_threshold: 1\n  busy_worker_ratio: 0\n"}.text(),
       "policy_classes[0].busy_worker_ratio: expected a share above 0, at most 1"},
      {Lines{.rest = "  quantum: 1\n  prefill_busy_threshold: 1\n  busy_worker_ratio: 16\n"}.text(),
       "policy_classes[0].busy_worker_ratio: expected a share above 0, at most 1"},
      {Lines{.rest = "  quantum: 1\n  busy_worker_ratio: 0.5\n"}.text(),
       "policy_classes[0].busy_worker_ratio: needs prefill_busy_threshold or "
       "prefill_busy_threshold_frac"},
      {Lines{.rest = "  quantum: 1\n  request_queue_limit_per_worker:\n"}.text(),
       "policy_classes[0].request_queue_limit_per_worker: expected a whole number, found nothing"},
      {Lines{.rest = "  quantum: 1\n  raw_isl_token_queue_limit_per_worker: -5\n"}.text(),
       "policy_classes[0].raw_isl_token_queue_limit_per_worker: expected at least 0"},
      {Lines{.rest = "  quantum: 1\n  cached_token_queue_limit_per_worker: x\n"}.text(),
       "policy_classes[0].cached_token_queue_limit_per_worker: expected a whole number, found "
       "text"},
      {Lines{.tail = "- {name: c, quantum: 1}\n"}.text(),
       "policy_classes[1].name: a second class \"c\""},
      {Lines{.tail = "- {name: d, policy_family: f, cache_bucket: b, quantum: 1}\n"}.text(),
       "policy_classes[1].cache_bucket: class \"c\" has this family and bucket already"},
      {Lines{.tail = "- {name: f, quantum: 1}\n"}.text(),
       "policy_classes[1].name: \"f\" is a family, too"},
      {std::string(PolicyConfig::kMaxBytes + 1, ' '),
       "the policy file is larger than 1048576 bytes"},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_EQ(error_of(text), error) << text.substr(0, 500);
  }
}

TEST(PolicyFile, CountsAreBounded) {
  Lines many;
  for (int i = 0; i < 256; ++i) {
    many.tail += fmt::format("- {{name: n{}, quantum: 1}}\n", i);
  }
  EXPECT_EQ(error_of(many.text()), "policy_classes: expected 1 to 256 elements");
  Lines buckets;
  for (int i = 1; i < 65; ++i) {
    buckets.buckets += fmt::format("- {{min_tokens: {}, bucket: b{}}}\n", i, i);
  }
  EXPECT_EQ(error_of(buckets.text()), "uncached_isl_buckets: expected 1 to 64 elements");
}

}  // namespace
}  // namespace fairlead::routing
