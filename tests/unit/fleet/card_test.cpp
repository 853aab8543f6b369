#include "fleet/card.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fairlead::fleet {
namespace {

using engine::Backend;
using engine::Capability;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Card parsed(const std::string& text, const std::string& default_instance = "w0") {
  Result<Card> card = parse_card(text, default_instance);
  EXPECT_TRUE(card.has_value()) << card.error().message << " in " << text;
  return card ? std::move(*card) : Card();
}

std::string error_of(const std::string& text, const std::string& default_instance = "w0") {
  const Result<Card> card = parse_card(text, default_instance);
  EXPECT_FALSE(card.has_value()) << text;
  if (!card) {
    EXPECT_EQ(card.error().code, ErrorCode::InvalidRequest);
  }
  return card ? std::string() : card.error().message;
}

TEST(Card, AnAddressIsEnough) {
  const Card card = parsed(R"({"url": "http://10.0.0.1:30001/"})");
  EXPECT_EQ(card.endpoint.url, "http://10.0.0.1:30001");
  EXPECT_EQ(card.backend, Backend::Vllm);
  EXPECT_EQ(card.key(), "/backend/generate/w0");
  EXPECT_EQ(card.base_key(), card.key());
  EXPECT_EQ(card.role, Role::Aggregated);
  EXPECT_TRUE(card.display_name.empty() && card.source_path.empty() && card.denied.empty());
  EXPECT_TRUE(card.default_sampling.is_null());
  EXPECT_FALSE(card.is_adapter() || card.max_gpu_lora_count.has_value());
}

TEST(Card, ReadsEveryField) {
  const Card card = parsed(R"({
    "display_name": "llama", "namespace": "prod", "component": "decode", "endpoint": "gen",
    "instance_id": "pod-7", "source_path": "org/llama", "aliases": ["a", "b"],
    "worker_type": "decode", "needs": [["prefill"], ["aggregated", "prefill"]],
    "context_length": 4096, "kv_cache_block_size": 16,
    "runtime_config": {"context_length": 2048, "max_gpu_lora_count": 3, "total_kv_blocks": 9,
                       "runtime_data": {"vllm_xargs": true, "lora": false, "unheard_of": false}},
    "url": "vllm-http=h:1", "backend": "vllm-http",
    "default_sampling_params": {"temperature": 0.5, "extra_args": {"k": [1]}},
    "tokenizer": {"checksum": "t"}, "model_info": {"hf_config_json": {"path": "x", "checksum": "m"}},
    "gen_config": {"path": "no digest"}, "prompt_formatter": null,
    "extra_files": [{"path": "z/b.json", "checksum": "2"}, {"path": "a.json", "checksum": "1"}],
    "model_type": "Chat", "migration_limit": 7, "a field of the future": [{}]
  })");
  EXPECT_EQ(card.key(), "prod/decode/gen/pod-7");
  EXPECT_EQ(card.display_name, "llama");
  EXPECT_EQ(card.source_path, "org/llama");
  EXPECT_THAT(card.aliases, ElementsAre("a", "b"));
  EXPECT_EQ(card.role, Role::Decode);
  EXPECT_THAT(card.needs, ElementsAre(ElementsAre(Role::Prefill),
                                      ElementsAre(Role::Aggregated, Role::Prefill)));
  EXPECT_EQ(card.context_length, 2048U) << "the running engine's limit counts";
  EXPECT_EQ(card.kv_block_size, 16U);
  EXPECT_EQ(card.total_kv_blocks, 9U);
  EXPECT_EQ(card.max_batched_tokens, 0U);
  EXPECT_EQ(card.denied, engine::CapabilitySet({Capability::Lora}));
  EXPECT_EQ(card.backend, Backend::VllmHttp);
  EXPECT_EQ(card.endpoint.url, "http://h:1");
  EXPECT_EQ(card.max_gpu_lora_count, 3U);
  EXPECT_EQ(json::dump(card.default_sampling), R"({"temperature":0.5,"extra_args":{"k":[1]}})");
  std::vector<std::pair<std::string, std::string>> files;
  for (const CardFile& file : card.files) {
    files.emplace_back(file.name, file.checksum);
  }
  EXPECT_THAT(
      files, ElementsAre(std::pair("extra_files/a.json", "1"), std::pair("extra_files/b.json", "2"),
                         std::pair("model_info", "m"), std::pair("tokenizer", "t")));
}

TEST(Card, NullIsAbsent) {
  const Card card = parsed(R"({"url": "h:1", "display_name": null, "worker_type": null,
      "needs": null, "lora": null, "model_suffix": null, "runtime_config": null, "aliases": null,
      "instance_id": null, "context_length": null, "default_sampling_params": null})");
  EXPECT_EQ(card.key(), "/backend/generate/w0");
  EXPECT_TRUE(card.display_name.empty() && card.default_sampling.is_null());
}

TEST(Card, NumbersNameInstancesInHexadecimal) {
  EXPECT_EQ(parsed(R"({"url": "h:1", "instance_id": 255})").instance_id, "ff");
  EXPECT_EQ(parsed(R"({"url": "h:1", "instance_id": 18446744073709551615})").instance_id,
            "ffffffffffffffff");
  for (const std::string bad : {"-1", "1.5", "18446744073709551616", "true", "{}", "\"\""}) {
    EXPECT_THAT(error_of(R"({"url": "h:1", "instance_id": )" + bad + "}"),
                HasSubstr("`instance_id`"));
  }
}

TEST(Card, TaintsAreASetAndTopologyDomainsAreTaints) {
  EXPECT_THAT(parsed(R"({"url": "h:1", "runtime_config": {"taints": ["z", "a", "z"],
                         "topology_domains": {"zone": "eu-1", "rack": "7"}}})")
                  .taints,
              ElementsAre("a", "dynamo.topology/rack=7", "dynamo.topology/zone=eu-1", "z"));
  EXPECT_THAT(parsed(R"({"url": "h:1", "runtime_config": {"taints": null}})").taints,
              ::testing::IsEmpty());
  const std::string longest(256, 'x');
  EXPECT_THAT(
      parsed(R"({"url": "h:1", "runtime_config": {"taints": [")" + longest + R"("]}})").taints,
      ElementsAre(longest));
  for (const std::string bad :
       {R"("taints": "a")", R"("taints": {})", R"("taints": [1])", R"("taints": [""])",
        R"("taints": [null])", R"("taints": ["a\u0001"])"}) {
    EXPECT_THAT(error_of(R"({"url": "h:1", "runtime_config": {)" + bad + "}}"),
                HasSubstr("`runtime_config.taints`"));
  }
  EXPECT_THAT(error_of(R"({"url": "h:1", "runtime_config": {"taints": ["x)" + longest + R"("]}})"),
              HasSubstr("`runtime_config.taints`"));
  for (const std::string bad :
       {R"([])", R"({"a": 1})", R"({"a": ""})", R"({"": "a"})", R"({"a=b": "c"})",
        R"({"a": "b=c"})", R"({"a": " b"})", R"({"a ": "b"})"}) {
    EXPECT_THAT(error_of(R"({"url": "h:1", "runtime_config": {"topology_domains": )" + bad + "}}"),
                HasSubstr("`runtime_config.topology_domains`"));
  }
  Card tainted = parsed(R"({"url": "h:1", "runtime_config": {"taints": ["a"]}})");
  EXPECT_EQ(tainted.checksum(), parsed(R"({"url": "h:1"})").checksum()) << "all serve together";
}

TEST(Card, AFileCannotGiveWhatTheProbeDidNotFindOnlyDenyIt) {
  for (const std::string value : {"false", "null", "1", "\"true\"", "{}"}) {
    const Card card = parsed(
        R"({"url": "h:1", "runtime_config": {"runtime_data": {"vllm_xargs": )" + value + "}}}");
    EXPECT_EQ(card.denied, engine::CapabilitySet({Capability::VllmXargs})) << value;
  }
  EXPECT_TRUE(parsed(R"({"url":"h:1","runtime_config":{"runtime_data":{"vllm_xargs":true}}})")
                  .denied.empty());
  EXPECT_TRUE(parsed(R"({"url":"h:1","runtime_config":{"runtime_data":{}}})").denied.empty());
}

TEST(Card, AnAdapterBelongsToTheWorkerOfItsInstance) {
  const Card card = parsed(R"({"namespace": "n", "instance_id": "w1", "model_suffix": "fr",
      "display_name": "llama-fr", "lora": {"name": "french", "max_gpu_lora_count": 2},
      "url": "h:1"})");
  EXPECT_TRUE(card.is_adapter());
  EXPECT_EQ(card.key(), "n/backend/generate/w1/fr");
  EXPECT_EQ(card.base_key(), "n/backend/generate/w1");
  EXPECT_EQ(card.lora_name, "french");
  EXPECT_EQ(card.display_name, "llama-fr");
  EXPECT_EQ(card.max_gpu_lora_count, 2U);
  EXPECT_TRUE(card.endpoint.url.empty()) << "it is where its worker is";
  EXPECT_EQ(
      parsed(R"({"instance_id": "w1", "model_suffix": "s", "lora": {"name": "x"}})").display_name,
      "x");
}

TEST(Card, AliasesAreSaidOnce) {
  EXPECT_THAT(
      parsed(R"({"url": "h:1", "display_name": "m", "aliases": ["a", "m", "a", "b"]})").aliases,
      ElementsAre("a", "b"));
}

TEST(Card, MistakesNameTheField) {
  const std::string u = R"("url": "h:1")";
  const std::vector<std::pair<std::string, std::string>> rows{
      {"", "not JSON"},
      {"[]", "a card is a JSON object"},
      {R"({"url": "h:1"} x)", "not JSON"},
      {"{}", "`url` is missing"},
      {R"({"url": 1})", "`url` must be a string"},
      {R"({"url": "https://h:1"})", "`url` cannot be used: "},
      {R"({"url": "openai-http=h:1"})",
       "`url` cannot be used: backend `openai-http` is not supported yet; choose `vllm`, "
       "`vllm-http` or `sglang`"},
      {R"({"url": "trt=h:1"})", "backend `trt` is unknown"},
      {R"({"url": "vllm=h:1", "backend": "vllm-http"})", "`url` names another backend"},
      {"{" + u + R"(, "backend": "openai-http"})", "`backend` cannot be used: backend"},
      {"{" + u + R"(, "backend": []})", "`backend` cannot be used: it must be a string"},
      {"{" + u + R"(, "display_name": 5})", "`display_name` must be a string"},
      {"{" + u + R"(, "display_name": " "})", "`display_name` must not be blank"},
      {"{" + u + R"(, "display_name": "a\nb"})", "`display_name` must be at most"},
      {"{" + u + R"(, "display_name": ")" + std::string(1025, 'x') + "\"}",
       "`display_name` must be at most 1024 bytes"},
      {"{" + u + R"(, "namespace": "a/b"})", "`namespace` must be at most"},
      {"{" + u + R"(, "component": ""})", "`component` must not be empty"},
      {"{" + u + R"(, "endpoint": ""})", "`endpoint` must not be empty"},
      {"{" + u + R"(, "instance_id": "a/b"})", "`instance_id` must be at most"},
      {"{" + u + R"(, "aliases": "a"})", "`aliases` must be a list"},
      {"{" + u + R"(, "aliases": [1]})", "`aliases` must hold names"},
      {"{" + u + R"(, "worker_type": "encode"})", "`worker_type` names the role `encode`, which"},
      {"{" + u + R"(, "worker_type": "chef"})", "`worker_type` must name a role"},
      {"{" + u + R"(, "needs": ["prefill"]})", "`needs` must hold lists"},
      {"{" + u + R"(, "needs": [["encode"]]})", "`needs` names the role `encode`"},
      {"{" + u + R"(, "needs": [[1]]})", "`needs` must name a role"},
      {"{" + u + R"(, "context_length": -1})", "`context_length` must be a whole number from 0"},
      {"{" + u + R"(, "context_length": 1.5})", "`context_length` must be a whole number"},
      {"{" + u + R"(, "kv_cache_block_size": 4294967296})", "`kv_cache_block_size` must be"},
      {"{" + u + R"(, "runtime_config": []})", "`runtime_config` must be an object"},
      {"{" + u + R"(, "runtime_config": {"context_length": "x"}})",
       "`runtime_config.context_length` must be a whole number"},
      {"{" + u + R"(, "runtime_config": {"runtime_data": 1}})",
       "`runtime_config.runtime_data` must be an object"},
      {"{" + u + R"(, "default_sampling_params": 1})", "`default_sampling_params` must be an obj"},
      {"{" + u + R"(, "model_suffix": "s"})", "`lora` is missing"},
      {"{" + u + R"(, "instance_id": "w", "lora": {"name": "x"}})", "`model_suffix` is missing"},
      {"{" + u + R"(, "instance_id": "w", "model_suffix": "s", "lora": {}})",
       "`lora.name` is missing"},
      {R"({"model_suffix": "s", "lora": {"name": "x"}})", "`instance_id` is missing: which worker"},
      {"{" + u + R"(, "extra_files": [1]})", "`extra_files` must hold objects"},
      {"{" + u + R"(, "tokenizer": {"checksum": ")" + std::string(513, 'x') + "\"}}",
       "`tokenizer` has a checksum that is too long"},
  };
  for (const auto& [text, message] : rows) {
    EXPECT_THAT(error_of(text), HasSubstr(message));
  }
  EXPECT_THAT(error_of(R"({"url": "h:1"})", ""), HasSubstr("`instance_id` is missing"));
  EXPECT_THAT(error_of(R"({"url": "h:1"})", "a/b"), HasSubstr("`instance_id` is missing"));
  EXPECT_THAT(error_of(std::string(kMaxCardBytes + 1, ' ')), HasSubstr("at most 1048576 bytes"));
  std::string aliases;
  for (int i = 0; i < 65; ++i) {
    aliases += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\"";
  }
  EXPECT_THAT(error_of("{" + u + R"(, "aliases": [)" + aliases + "]}"),
              HasSubstr("`aliases` must be a list of at most 64"));
  EXPECT_EQ(parse_card(R"({"url": 1})", "w").error().param, "url");
}

TEST(CardChecksum, CoversWhatInterchangeableWorkersShare) {
  const auto base = [] {
    Card card;
    card.display_name = "m";
    card.aliases = {"a"};
    return card;
  };
  using Change = std::function<void(Card&)>;
  const std::vector<Change> changes{
      [](Card&) {},
      [](Card& c) { c.display_name = "n"; },
      [](Card& c) { c.display_name.clear(), c.source_path = "m"; },
      [](Card& c) { c.source_path = "m"; },
      [](Card& c) { c.aliases = {"b"}; },
      [](Card& c) { c.aliases = {"a", "b"}; },
      [](Card& c) { c.aliases = {"b", "a"}; },
      [](Card& c) { c.aliases = {"ab"}; },
      [](Card& c) { c.aliases.clear(); },
      [](Card& c) { c.context_length = 1; },
      [](Card& c) { c.kv_block_size = 1; },
      [](Card& c) { c.role = Role::Prefill; },
      [](Card& c) { c.role = Role::Decode; },
      [](Card& c) { c.needs = {{Role::Prefill}}; },
      [](Card& c) { c.needs = {{Role::Prefill, Role::Decode}}; },
      [](Card& c) { c.needs = {{Role::Prefill}, {Role::Decode}}; },
      [](Card& c) { c.needs = {{}}; },
      [](Card& c) { c.files = {{"tokenizer", "1"}}; },
      [](Card& c) { c.files = {{"tokenizer", "2"}}; },
      [](Card& c) { c.files = {{"model_info", "1"}}; },
      [](Card& c) { c.files = {{"model_info", "1"}, {"tokenizer", "1"}}; },
      [](Card& c) { c.default_sampling = *json::parse(R"({"top_k":1})"); },
      [](Card& c) { c.default_sampling = *json::parse("{}"); },
  };
  std::set<std::string> seen;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Card card = base();
    changes[i](card);
    EXPECT_EQ(card.checksum().size(), 32U);
    EXPECT_TRUE(seen.insert(card.checksum()).second) << "change " << i;
  }
}

TEST(CardChecksum, LeavesOutIdentityAddressCapabilitiesAndAdapters) {
  const Card base = parsed(R"({"url": "h:1", "display_name": "m"})");
  const Card other = parsed(R"({"url": "vllm-http=h:2", "display_name": "m", "namespace": "n",
      "component": "c", "endpoint": "e", "instance_id": "i",
      "runtime_config": {"runtime_data": {"vllm_xargs": false}, "max_gpu_lora_count": 4,
                         "tool_call_parser": "hermes", "reasoning_parser": "qwen3"},
      "model_type": "Chat", "user_data": 1})");
  EXPECT_EQ(base.checksum(), other.checksum());
  EXPECT_NE(base.key(), other.key());
  const Card named = parsed(R"({"url": "h:1", "default_sampling_params":
      {"top_k": 1, "extra_args": {"a": 1, "b": 2}}})");
  const Card turned = parsed(R"({"url": "h:1", "default_sampling_params":
      {"extra_args": {"b": 2, "a": 1}, "top_k": 1}})");
  EXPECT_EQ(named.checksum(), turned.checksum()) << "the order of members says nothing";
}

// Frontends of one version compare checksums of theirs: the encoding must not drift by accident.
TEST(CardChecksum, IsStable) {
  EXPECT_EQ(parsed(R"({"url": "h:1", "display_name": "m", "aliases": ["a"]})").checksum(),
            "2bb28cd837185afdb3b41fc705379c08");
}

}  // namespace
}  // namespace fairlead::fleet
