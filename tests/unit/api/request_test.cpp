#include "api/openai/request.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fairlead::api::openai {
namespace {

using observe::Endpoint;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

Result<RequestBody> parse(Endpoint endpoint, std::string text, const ApiOptions& options = {}) {
  text.reserve(text.size() + net::http::kBodyPadding);
  JsonReader reader;
  return parse_request(endpoint, reader, text, options);
}

/// A chat body with `extra` members behind the required ones.
std::string chat_body(const std::string& extra = {}) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" +
         (extra.empty() ? extra : "," + extra) + "}";
}

std::string completion_body(const std::string& extra = {}) {
  return R"({"model":"m","prompt":"hi")" + (extra.empty() ? extra : "," + extra) + "}";
}

Result<RequestBody> chat(const std::string& extra = {}, const ApiOptions& options = {}) {
  return parse(Endpoint::ChatCompletions, chat_body(extra), options);
}

Result<RequestBody> completion(const std::string& extra = {}, const ApiOptions& options = {}) {
  return parse(Endpoint::Completions, completion_body(extra), options);
}

struct Row {
  std::string extra;  // members added to the body
  std::string param;  // field that the error names
  std::string text;   // part of the message
  ErrorCode code = ErrorCode::InvalidRequest;
};

void expect_refused(const Result<RequestBody>& result, const Row& row) {
  ASSERT_FALSE(result.has_value()) << row.extra;
  EXPECT_EQ(result.error().code, row.code) << row.extra << ": " << result.error().message;
  EXPECT_EQ(result.error().param, row.param) << row.extra << ": " << result.error().message;
  EXPECT_THAT(result.error().message, HasSubstr(row.text)) << row.extra;
}

TEST(RequestParsing, RulesOfFieldsThatBothEndpointsShare) {
  const std::vector<Row> rows{
      {R"("temperature":-0.1)", "temperature", "from 0 to 2"},
      {R"("temperature":2.1)", "temperature", "from 0 to 2"},
      {R"("temperature":"hot")", "temperature", "must be a number, not a string"},
      {R"("temperature":true)", "temperature", "must be a number, not a boolean"},
      {R"("top_p":0)", "top_p", "above 0"},
      {R"("top_p":1.01)", "top_p", "from 0 to 1"},
      {R"("top_k":-2)", "top_k", "at least -1"},
      {R"("top_k":1.5)", "top_k", "whole number"},
      {R"("min_p":1.5)", "min_p", "from 0 to 1"},
      {R"("presence_penalty":2.5)", "presence_penalty", "from -2 to 2"},
      {R"("frequency_penalty":-2.5)", "frequency_penalty", "from -2 to 2"},
      {R"("repetition_penalty":0)", "repetition_penalty", "above 0"},
      {R"("n":0)", "n", "from 1 to 128"},
      {R"("n":129)", "n", "from 1 to 128"},
      {R"("n":[1])", "n", "must be a number, not an array"},
      {R"("max_tokens":0)", "max_tokens", "at least 1"},
      {R"("max_tokens":-5)", "max_tokens", "at least"},
      {R"("max_tokens":99999999999999999999)", "max_tokens", "too large"},
      {R"("min_tokens":-1)", "min_tokens", "at least 0"},
      {R"("min_tokens":9,"max_tokens":8)", "min_tokens", "must not exceed"},
      {R"("seed":9223372036854775808)", "seed", "too large"},
      {R"("stop":"")", "stop", "empty string"},
      {R"("stop":["a",""])", "stop", "empty string"},
      {R"("stop":["a",1])", "stop", "only strings or only token ids"},
      {R"("stop":[1,"a"])", "stop", "only strings or only token ids"},
      {R"("stop":[-1])", "stop", "token ids"},
      {R"("stop":{})", "stop", "must be a string, or an array"},
      {R"("stop_token_ids":[1,"x"])", "stop_token_ids", "must be a number"},
      {R"("stop_token_ids":[4294967296])", "stop_token_ids", "token ids"},
      {R"("logit_bias":{"x":1})", "logit_bias", "keys must be token ids"},
      {R"("logit_bias":{"-1":1})", "logit_bias", "keys must be token ids"},
      {R"("logit_bias":{"4294967296":1})", "logit_bias", "keys must be token ids"},
      {R"("logit_bias":{"99999999999999999999999":1})", "logit_bias", "keys must be token ids"},
      {R"("logit_bias":{"":1})", "logit_bias", "keys must be token ids"},
      {R"("logit_bias":{"7":100.5})", "logit_bias", "from -100 to 100"},
      {R"("logit_bias":[1])", "logit_bias", "must be an object"},
      {R"("allowed_token_ids":[])", "allowed_token_ids", "must not be empty"},
      {R"("bad_words_token_ids":[[]])", "bad_words_token_ids", "at least one"},
      {R"("bad_words":[" "])", "bad_words", "empty string"},
      {R"("ignore_eos":1)", "ignore_eos", "must be a boolean, not a number"},
      {R"("stream":"yes")", "stream", "must be a boolean, not a string"},
      {R"("stream_options":{"include_usage":true})", "stream_options", "only allowed when"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage",
       "must be a boolean"},
      {R"("stream":true,"stream_options":[])", "stream_options", "must be an object"},
      {R"("truncate_prompt_tokens":0)", "truncate_prompt_tokens", "-1 or at least 1"},
      {R"("truncate_prompt_tokens":-2)", "truncate_prompt_tokens", "at least -1"},
      {R"("truncation_side":"top")", "truncation_side", "`left` or `right`"},
      {R"("priority":2147483648)", "priority", "too large"},
      {R"("cache_salt":"")", "cache_salt", "1 to 4096"},
      {R"("request_id":"a b")", "request_id", "printable"},
      {R"("model":"  ")", "model", "must not be blank"},
      {R"("model":null)", "model", "must not be blank"},
      {R"("model":3)", "model", "must be a string, not a number"},
      {R"("user":3)", "user", "must be a string"},
      {R"("stream_interval":0)", "stream_interval", "at least 1"},
      {R"("nvext":[])", "nvext", "must be an object"},
      {R"("nvext":{"dp_rank":-1})", "nvext.dp_rank", "from 0 to"},
      {R"("nvext":{"decode_worker_id":"a"})", "nvext.decode_worker_id", "must be a number"},
      {R"("nvext":{"prefill_worker_id":-1})", "nvext.prefill_worker_id", "at least 0"},
      {R"("nvext":{"routing_constraints":[]})", "nvext.routing_constraints", "must be an object"},
      {R"("nvext":{"routing_constraints":{"required_taints":"a"}})",
       "nvext.routing_constraints.required_taints", "must be an array"},
      {R"("nvext":{"routing_constraints":{"required_taints":[1]}})",
       "nvext.routing_constraints.required_taints", "must be a string"},
      {R"("nvext":{"routing_constraints":{"required_taints":[""]}})",
       "nvext.routing_constraints.required_taints", "1 to 256 bytes"},
      {R"("nvext":{"routing_constraints":{"preferred_taints":["a"]}})",
       "nvext.routing_constraints.preferred_taints", "must be an object"},
      {R"("nvext":{"routing_constraints":{"preferred_taints":{"a":null}}})",
       "nvext.routing_constraints.preferred_taints", "must be a number"},
      {R"("nvext":{"routing_constraints":{"preferred_taints":{"a":1e39}}})",
       "nvext.routing_constraints.preferred_taints", "must be from"},
      {R"("nvext":{"routing_constraints":{"preferred_taints":{"":1}}})",
       "nvext.routing_constraints.preferred_taints", "1 to 256 bytes"},
      {R"("response_format":{"type":"xml"})", "response_format", "must be `text`"},
      {R"("response_format":{})", "response_format", "must be a string"},
  };
  for (const Row& row : rows) {
    expect_refused(chat(row.extra), row);
    expect_refused(completion(row.extra), row);
  }
}

TEST(RequestParsing, FieldsOfLaterFeaturesAreRefusedByName) {
  const auto code = ErrorCode::UnsupportedField;
  const std::vector<Row> both{
      {R"("response_format":{"type":"json_object"})", "response_format", "json_object", code},
      {R"("structured_outputs":{"regex":"a"})", "structured_outputs", "not supported", code},
      {R"("guided_json":{})", "guided_json", "not supported", code},
      {R"("use_beam_search":true)", "use_beam_search", "not supported", code},
      {R"("detokenize":false)", "detokenize", "not supported", code},
      {R"("kv_transfer_params":{})", "kv_transfer_params", "not supported", code},
      {R"("thinking_token_budget":5)", "thinking_token_budget", "not supported", code},
      {R"("mm_processor_kwargs":{"a":1})", "mm_processor_kwargs", "not supported", code},
      {R"("spaces_between_special_tokens":false)", "spaces_between_special_tokens", "only true is",
       code},
      {R"("routed_experts_prompt_start":3)", "routed_experts_prompt_start", "not supported", code},
      {R"("nvext":{"token_data":[1]})", "nvext.token_data", "not supported", code},
      {R"("nvext":{"metadata_upload":1})", "nvext.metadata_upload", "not supported", code},
      {R"("nvext":{"made_up":1})", "nvext.made_up", "no such key", code},
      {R"("nvext":{"routing_constraints":{"made_up":1}})", "nvext.routing_constraints.made_up",
       "no such key", code},
      {R"("nvext":{"annotations":["formatted_prompt"]})", "nvext.annotations", "formatted_prompt",
       code},
  };
  for (const Row& row : both) {
    expect_refused(chat(row.extra), row);
    expect_refused(completion(row.extra), row);
  }
  const std::vector<Row> chats{
      {R"("tools":[{"type":"function"}])", "tools", "not supported", code},
      {R"("tool_choice":"required")", "tool_choice", "not supported", code},
      {R"("tool_choice":{"type":"function"})", "tool_choice", "not supported", code},
      {R"("functions":[{"name":"f"}])", "functions", "not supported", code},
      {R"("function_call":"auto")", "function_call", "not supported", code},
      {R"("audio":{"voice":"x"})", "audio", "not supported", code},
      {R"("modalities":["text","audio"])", "modalities", "only `text`", code},
      {R"("reasoning_effort":"low")", "reasoning_effort", "not supported", code},
      {R"("include_reasoning":false)", "include_reasoning", "only true is", code},
      {R"("chat_template":"x")", "chat_template", "not supported", code},
      {R"("web_search_options":{})", "web_search_options", "not supported", code},
  };
  for (const Row& row : chats) {
    expect_refused(chat(row.extra), row);
  }
  const std::vector<Row> completions{
      {R"("suffix":"x")", "suffix", "not supported", code},
      {R"("best_of":2)", "best_of", "unless it equals `n`", code},
      {R"("prompt_embeds":"AAAA")", "prompt_embeds", "not supported", code},
  };
  for (const Row& row : completions) {
    expect_refused(completion(row.extra), row);
  }
}

TEST(RequestParsing, NeutralValuesOfThoseFieldsAreAccepted) {
  const std::vector<std::string> both{R"("response_format":{"type":"text"})",
                                      R"("response_format":null)",
                                      R"("structured_outputs":null)",
                                      R"("vllm_xargs":{})",
                                      R"("echo":false)",
                                      R"("use_beam_search":false)",
                                      R"("detokenize":true)",
                                      R"("logprobs":false)",
                                      R"("logprobs":null)",
                                      R"("return_token_ids":false)",
                                      R"("mm_processor_kwargs":{})",
                                      R"("length_penalty":1.0)",
                                      R"("user":"u")",
                                      R"("metadata":{"a":{"b":[1,"x",null]}})",
                                      R"("service_tier":"auto")",
                                      R"("safety_identifier":"s")",
                                      R"("prompt_cache_key":"k")",
                                      R"("stream_interval":5)",
                                      R"("nvext":{"annotations":[],"agent_hints":{"osl":5}})",
                                      R"("nvext":null)",
                                      R"("stop":[])",
                                      R"("stop":null)",
                                      R"("temperature":null)",
                                      R"("n":null)",
                                      R"("logit_bias":{})",
                                      R"("seed":null)",
                                      R"("stream_options":null)",
                                      R"("routed_experts_prompt_start":0)",
                                      R"("max_tokens":5.0)"};
  for (const std::string& extra : both) {
    const auto chatted = chat(extra);
    EXPECT_TRUE(chatted.has_value()) << extra << ": " << chatted.error().message;
    const auto completed = completion(extra);
    EXPECT_TRUE(completed.has_value()) << extra << ": " << completed.error().message;
  }
  for (const std::string extra :
       {R"("tools":[],"tool_choice":"none")", R"("tools":null)", R"("parallel_tool_calls":true)",
        R"("functions":[])", R"("modalities":["text"])", R"("store":true)", R"("top_logprobs":0)",
        R"("prediction":{"type":"content","content":"x"})", R"("include_reasoning":true)",
        R"("tool_choice":"auto")"}) {
    const auto chatted = chat(extra);
    EXPECT_TRUE(chatted.has_value()) << extra << ": " << chatted.error().message;
  }
  for (const std::string extra :
       {R"("suffix":"")", R"("best_of":1)", R"("best_of":3,"n":3)", R"("prompt_embeds":null)"}) {
    const auto completed = completion(extra);
    EXPECT_TRUE(completed.has_value()) << extra << ": " << completed.error().message;
  }
}

TEST(RequestParsing, EveryUnknownFieldIsNamedInOneError) {
  const auto refused = chat(R"("zeta":1,"alpha":{"x":[1]},"zeta":2)");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::UnsupportedField);
  EXPECT_EQ(refused.error().message, "Unsupported parameter(s): `zeta`, `alpha`");
  EXPECT_FALSE(completion(R"("add_generation_prompt":true)").has_value());
  EXPECT_FALSE(completion(R"("messages":[])").has_value());
  EXPECT_FALSE(chat(R"("prompt":"x")").has_value());

  const ApiOptions ignoring{.ignore_unsupported_fields = true};
  EXPECT_TRUE(chat(R"("zeta":1)", ignoring).has_value());
  EXPECT_FALSE(chat(R"("zeta":1e)", ignoring).has_value());
  EXPECT_FALSE(chat(R"("use_beam_search":true)", ignoring).has_value())
      << "known fields stay refused";
  EXPECT_FALSE(chat(R"("temperature":9)", ignoring).has_value());
}

TEST(RequestParsing, ValuesArriveAsWritten) {
  const auto parsed = chat(
      R"("stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true,
      "include_obfuscation":false},"temperature":0.25,"top_p":0.5,"top_k":-1,"min_p":0.125,"n":3,
      "presence_penalty":-2,"frequency_penalty":1.5,"repetition_penalty":1.25,"seed":-3,
      "max_tokens":7,"max_completion_tokens":9,"min_tokens":2,"stop":["a","b"],
      "stop_token_ids":[5,6],"logit_bias":{"12":-100,"3":1.5},"ignore_eos":true,
      "include_stop_str_in_output":true,"skip_special_tokens":false,"priority":-4,
      "cache_salt":"s","request_id":"r-1","session_id":"x","allowed_token_ids":[1],
      "bad_words_token_ids":[[1,2],[3]],"bad_words":["no"],"truncate_prompt_tokens":-1,
      "truncation_side":"right","add_special_tokens":true,"add_generation_prompt":false,
      "continue_final_message":true,"chat_template_kwargs":{"enable_thinking":false},
      "documents":[{"title":"t"}])");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  const RequestBody& body = *parsed;
  EXPECT_EQ(body.model, "m");
  EXPECT_TRUE(body.stream && body.include_usage && body.continuous_usage);
  EXPECT_EQ(body.temperature, 0.25F);
  EXPECT_EQ(body.top_p, 0.5F);
  EXPECT_EQ(body.top_k, 0U);
  EXPECT_EQ(body.min_p, 0.125F);
  EXPECT_EQ(body.n, 3U);
  EXPECT_EQ(body.presence_penalty, -2.0F);
  EXPECT_EQ(body.frequency_penalty, 1.5F);
  EXPECT_EQ(body.repetition_penalty, 1.25F);
  EXPECT_EQ(body.seed, -3);
  EXPECT_EQ(body.max_tokens, 9U) << "the completion limit wins";
  EXPECT_EQ(body.min_tokens, 2U);
  EXPECT_THAT(body.stop, ElementsAre("a", "b"));
  EXPECT_THAT(body.stop_token_ids, ElementsAre(5, 6));
  EXPECT_THAT(body.logit_bias, ElementsAre(Pair(12, -100.0F), Pair(3, 1.5F)));
  EXPECT_TRUE(body.ignore_eos && body.include_stop);
  EXPECT_FALSE(body.skip_special_tokens);
  EXPECT_EQ(body.priority, -4);
  EXPECT_EQ(body.cache_salt, "s");
  EXPECT_EQ(body.request_id, "r-1");
  EXPECT_EQ(body.session_id, "x");
  EXPECT_THAT(body.allowed_token_ids, ElementsAre(1));
  EXPECT_THAT(body.bad_words_token_ids, ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
  EXPECT_THAT(body.bad_words, ElementsAre("no"));
  EXPECT_EQ(body.truncate_prompt_tokens, -1);
  EXPECT_TRUE(body.truncate_right);
  EXPECT_EQ(body.add_special_tokens, true);
  EXPECT_FALSE(body.add_generation_prompt);
  EXPECT_TRUE(body.continue_final_message);
  EXPECT_EQ(json::dump(body.template_kwargs), R"({"enable_thinking":false})");
  EXPECT_EQ(json::dump(body.documents), R"([{"title":"t"}])");
}

TEST(RequestParsing, IntegerStopsAreTokenIds) {
  const auto parsed = completion(R"("stop":[7,8],"stop_token_ids":[5])");
  ASSERT_TRUE(parsed.has_value());
  EXPECT_TRUE(parsed->stop.empty());
  EXPECT_THAT(parsed->stop_token_ids, ElementsAre(5, 7, 8));
}

TEST(RequestParsing, StopTakesThirtyTwoEntries) {
  const auto list = [](int count) {
    std::string out = "\"stop\":[";
    for (int i = 0; i < count; ++i) {
      out += std::string(i ? "," : "") + "\"s" + std::to_string(i) + "\"";
    }
    return out + "]";
  };
  EXPECT_TRUE(completion(list(32)).has_value());
  expect_refused(completion(list(33)), {"33 stops", "stop", "at most 32"});
}

// Every choice carries these lists to the engine, so a small body must not become gigabytes.
TEST(RequestParsing, ListsThatEveryChoiceCarriesAreBounded) {
  const auto list = [](const std::string& name, std::size_t count, const std::string& entry) {
    std::string out = "\"" + name + "\":[";
    for (std::size_t i = 0; i < count; ++i) {
      out += (i ? "," : "") + entry;
    }
    return out + "]";
  };
  EXPECT_TRUE(completion(list("bad_words", kMaxBadWords, "\"a\"")).has_value());
  expect_refused(completion(list("bad_words", kMaxBadWords + 1, "\"a\"")),
                 {"too many bad words", "bad_words", "at most 1024"});
  expect_refused(completion(list("bad_words", 2, "\"" + std::string(40000, 'a') + "\"")),
                 {"too long bad words", "bad_words", "65536 bytes"});
  EXPECT_TRUE(completion(list("bad_words_token_ids", kMaxBadWords, "[1]")).has_value());
  expect_refused(completion(list("bad_words_token_ids", kMaxBadWords + 1, "[1]")),
                 {"too many bad ids", "bad_words_token_ids", "at most 1024"});
  EXPECT_TRUE(completion(list("stop_token_ids", kMaxStopIds, "1")).has_value());
  expect_refused(completion(list("stop_token_ids", kMaxStopIds + 1, "1")),
                 {"too many stop ids", "stop_token_ids", "at most 4096"});
  const std::string allowed = list("allowed_token_ids", kMaxAllowedIds / 64, "1");
  EXPECT_TRUE(completion(allowed).has_value());
  EXPECT_TRUE(completion(allowed + R"(,"n":64)").has_value());
  expect_refused(completion(allowed + R"(,"n":65)"),
                 {"too many allowed ids", "allowed_token_ids", "for 65 choices"});
}

TEST(RequestParsing, ABodyCannotBecomeDocumentsOfAnySize) {
  const auto documents = [](std::size_t count) {
    std::string out = "\"documents\":[{\"a\":[";
    for (std::size_t i = 0; i < count; ++i) {
      out += i ? ",1" : "1";
    }
    return out + "]}]";
  };
  // The array, the object, the list and the message's four values count as well.
  EXPECT_TRUE(chat(documents(kMaxValues - 7)).has_value());
  expect_refused(chat(documents(kMaxValues - 6)), {"values", "", "more than 1048576 values"});
  std::string bias = "\"logit_bias\":{";
  for (std::size_t i = 0; i <= kMaxBiases; ++i) {
    bias += (i ? ",\"" : "\"") + std::to_string(i) + "\":1";
  }
  expect_refused(completion(bias + "}"), {"biases", "logit_bias", "at most 16384"});
}

TEST(RequestParsing, ARepeatedKeyTakesItsLastValue) {
  const auto parsed = chat(R"("n":5,"n":2,"stop":"a","stop":["b"],"temperature":1,
      "temperature":null,"stream_options":{"include_usage":true},"stream_options":null)");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(parsed->n, 2U);
  EXPECT_THAT(parsed->stop, ElementsAre("b"));
  EXPECT_FALSE(parsed->temperature.has_value());
  EXPECT_FALSE(parsed->include_usage);
  const auto escaped = parse(Endpoint::Completions, R"({"model":"m","\u006d\u006fdel":"z",
      "prompt":"a"})");
  ASSERT_TRUE(escaped.has_value());
  EXPECT_EQ(escaped->model, "z") << "keys are compared unescaped";
}

TEST(RequestParsing, PromptForms) {
  const auto parse_prompt = [](const std::string& prompt, const std::string& extra = {}) {
    return parse(Endpoint::Completions, R"({"model":"m","prompt":)" + prompt + extra + "}");
  };
  const auto one = parse_prompt(R"("a")");
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(std::get<std::string>(one->prompts.at(0)), "a");
  const auto texts = parse_prompt(R"(["a","b"])");
  ASSERT_TRUE(texts.has_value());
  EXPECT_EQ(texts->prompts.size(), 2U);
  const auto ids = parse_prompt("[1,2,4294967295]");
  ASSERT_TRUE(ids.has_value());
  EXPECT_THAT(std::get<1>(ids->prompts.at(0)), ElementsAre(1, 2, 4294967295U));
  const auto batch = parse_prompt("[[1],[2,3]]");
  ASSERT_TRUE(batch.has_value());
  EXPECT_THAT(std::get<1>(batch->prompts.at(1)), ElementsAre(2, 3));

  for (const std::string wrong :
       {"[]", "[[]]", "[1,\"a\"]", "[\"a\",1]", "[[1],2]", "[1.5]", "[-1]", "[null]", "{}", "5",
        "[[1],[]]", "[[\"a\"]]", "[4294967296]", "true"}) {
    const auto refused = parse_prompt(wrong);
    ASSERT_FALSE(refused.has_value()) << wrong;
    EXPECT_EQ(refused.error().param, "prompt") << wrong;
  }
  EXPECT_FALSE(parse_prompt("null").has_value());
  EXPECT_TRUE(parse_prompt(R"(["a","b"])", R"(,"n":64)").has_value());
  expect_refused(parse_prompt(R"(["a","b"])", R"(,"n":65)"), {"2×65", "n", "128 choices"});
}

TEST(RequestParsing, MessagesAreChecked) {
  const auto messages = [](const std::string& text) {
    return parse(Endpoint::ChatCompletions, R"({"model":"m","messages":)" + text + "}");
  };
  const std::vector<Row> rows{
      {"[]", "messages", "must not be empty"},
      {"{}", "messages", "must be an array"},
      {"null", "messages", "must be an array"},
      {"[1]", "messages[0]", "must be an object"},
      {R"([{"content":"x"}])", "messages[0].role", "one of"},
      {R"([{"role":"wizard","content":"x"}])", "messages[0].role", "one of"},
      {R"([{"role":"user"}])", "messages[0].content", "required"},
      {R"([{"role":"user","content":null}])", "messages[0].content", "required"},
      {R"([{"role":"user","content":5}])", "messages[0].content", "a string or an array"},
      {R"([{"role":"user","content":[5]}])", "messages[0].content[0]", "must be an object"},
      {R"([{"role":"user","content":[{"text":"x"}]}])", "messages[0].content[0].type",
       "must be a string"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text",
       "must be a string"},
      {R"([{"role":"user","content":"a"},{"role":"user","content":[{"type":"image_url"}]}])",
       "messages[1].content[0].type", "`image_url` is not supported", ErrorCode::UnsupportedField},
      {R"([{"role":"user","content":"x","name":5}])", "messages[0].name", "must be a string"},
      {R"([{"role":"assistant","tool_calls":5}])", "messages[0].tool_calls", "must be an array"},
      {R"([{"role":"assistant","tool_calls":[{"id":"a"}]}])", "messages[0].tool_calls[0].function",
       "must be an object"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":""}}]}])",
       "messages[0].tool_calls[0].function.name", "not empty"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":5}}]}])",
       "messages[0].tool_calls[0].function.arguments", "string of JSON"},
  };
  for (const Row& row : rows) {
    expect_refused(messages(row.extra), row);
  }
  const auto good = messages(R"([{"role":"system","content":"s","extra":[1]},
      {"role":"user","content":[{"type":"input_text","text":"x"},{"type":"text","text":"y"}]},
      {"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f",
      "arguments":"{}"}}]},{"role":"tool","content":"r","tool_call_id":"1"}])");
  ASSERT_TRUE(good.has_value()) << good.error().message;
  EXPECT_EQ(json::dump(good->messages),
            R"([{"role":"system","content":"s","extra":[1]},)"
            R"({"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]},)"
            R"({"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f",)"
            R"("arguments":"{}"},"type":"function"}]},)"
            R"({"role":"tool","content":"r","tool_call_id":"1"}])");
  EXPECT_FALSE(parse(Endpoint::ChatCompletions, R"({"model":"m"})").has_value());
}

TEST(RequestParsing, ChatOnlyRules) {
  expect_refused(chat(R"("continue_final_message":true)"),
                 {"", "continue_final_message", "add_generation_prompt"});
  expect_refused(chat(R"("top_logprobs":3)"), {"", "top_logprobs", "needs `logprobs`"});
  expect_refused(chat(R"("top_logprobs":21)"), {"", "top_logprobs", "from 0 to 20"});
  expect_refused(chat(R"("logprobs":3)"), {"", "logprobs", "must be a boolean"});
  expect_refused(chat(R"("documents":[1])"), {"", "documents", "must hold objects"});
  expect_refused(chat(R"("chat_template_kwargs":{"chat_template":"x"})"),
                 {"", "chat_template_kwargs", "must not hold"});
  expect_refused(chat(R"("chat_template_args":[])"), {"", "chat_template_args", "an object"});
}

TEST(RequestParsing, RulesOfLogProbabilitiesAndTokenIds) {
  std::string many = "0";
  for (int i = 1; i < 129; ++i) {
    many += "," + std::to_string(i);
  }
  const std::vector<Row> both{
      {R"("prompt_logprobs":-2)", "prompt_logprobs", "at least -1"},
      {R"("prompt_logprobs":true)", "prompt_logprobs", "must be a number, not a boolean"},
      {R"("prompt_logprobs":1.5)", "prompt_logprobs", "whole number"},
      {R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs", "not available in streams"},
      {R"("prompt_logprobs":-1,"stream":true)", "prompt_logprobs", "not available in streams"},
      {R"("logprob_token_ids":[])", "logprob_token_ids", "1 to 128"},
      {R"("logprob_token_ids":[)" + many + "]", "logprob_token_ids", "1 to 128"},
      {R"("logprob_token_ids":[-1])", "logprob_token_ids", "token ids"},
      {R"("logprob_token_ids":[1])", "logprob_token_ids", "needs `logprobs`"},
      {R"("return_token_ids":1)", "return_token_ids", "must be a boolean"},
      {R"("return_tokens_as_token_ids":"x")", "return_tokens_as_token_ids", "must be a boolean"},
      {R"("echo":1)", "echo", "must be a boolean"},
      {R"("nvext":{"extra_fields":"stop_reason"})", "nvext.extra_fields", "must be an array"},
      {R"("nvext":{"extra_fields":[1]})", "nvext.extra_fields", "must be a string"},
      {R"("n":2,"nvext":{"extra_fields":["completion_token_ids"]})", "nvext.extra_fields",
       "exactly one choice, not 2"},
  };
  for (const Row& row : both) {
    expect_refused(chat(row.extra), row);
    expect_refused(completion(row.extra), row);
  }
  for (const Row& row : std::vector<Row>{
           {R"("logprobs":false,"top_logprobs":1)", "top_logprobs", "needs `logprobs`"},
           {R"("logprobs":true,"top_logprobs":-1)", "top_logprobs", "from 0 to 20"},
           {R"("logprobs":false,"logprob_token_ids":[1])", "logprob_token_ids", "needs `logprobs`"},
           {R"("echo":true,"max_tokens":0)", "max_tokens", "at least 1"},
       }) {
    expect_refused(chat(row.extra), row);
  }
  for (const Row& row : std::vector<Row>{
           {R"("logprobs":21)", "logprobs", "from 0 to 20"},
           {R"("logprobs":-1)", "logprobs", "from 0 to 20"},
           {R"("logprobs":true)", "logprobs", "must be a number, not a boolean"},
           {R"("logprobs":"5")", "logprobs", "must be a number, not a string"},
           {R"("echo":true,"logprobs":1,"logprob_token_ids":[1])", "logprob_token_ids", "`echo`"},
           {R"("echo":true,"max_tokens":0,"min_tokens":1)", "min_tokens", "must not exceed"},
           {R"("prompt":["a","b"],"nvext":{"extra_fields":["completion_token_ids"]})",
            "nvext.extra_fields", "exactly one choice, not 2"},
       }) {
    expect_refused(completion(row.extra), row);
  }
}

TEST(RequestParsing, LogProbabilitiesAndTokenIdsArriveAsWritten) {
  const auto chatted = chat(
      R"("logprobs":true,"top_logprobs":20,"prompt_logprobs":-1,"logprob_token_ids":[7,5],
      "return_tokens_as_token_ids":true,"return_token_ids":true,"echo":true,
      "nvext":{"extra_fields":["stop_reason","made_up","completion_token_ids","timing"]})");
  ASSERT_TRUE(chatted.has_value()) << chatted.error().message;
  EXPECT_EQ(chatted->logprobs, true);
  EXPECT_EQ(chatted->top_logprobs, 20U);
  EXPECT_EQ(chatted->prompt_logprobs, engine::kAllCandidates);
  EXPECT_THAT(chatted->logprob_token_ids, ElementsAre(7, 5));
  EXPECT_TRUE(chatted->tokens_as_ids && chatted->return_token_ids && chatted->echo);
  EXPECT_EQ(chatted->nvext_fields,
            (NvextFields{.completion_token_ids = true, .stop_reason = true}));
  const auto completed =
      completion(R"("logprobs":0,"echo":true,"max_tokens":0,"stream":true,"prompt_logprobs":0)");
  ASSERT_TRUE(completed.has_value()) << completed.error().message;
  EXPECT_EQ(completed->logprobs, true);
  EXPECT_EQ(completed->top_logprobs, 0U);
  EXPECT_EQ(completed->max_tokens, 0U);
  EXPECT_EQ(completed->prompt_logprobs, 0U);
  // The last of repeated keys counts, and null is nothing.
  const auto last = completion(R"("logprobs":5,"logprobs":null,"prompt_logprobs":3,)"
                               R"("prompt_logprobs":null,"echo":true,"echo":null)");
  ASSERT_TRUE(last.has_value()) << last.error().message;
  EXPECT_FALSE(last->logprobs || last->top_logprobs || last->prompt_logprobs || last->echo);
  const auto dropped =
      chat(R"("n":2,"nvext":{"extra_fields":["completion_token_ids"]})", {.disable_nvext = true});
  ASSERT_TRUE(dropped.has_value()) << dropped.error().message;
  EXPECT_EQ(dropped->nvext_fields, NvextFields());
}

TEST(RequestParsing, BrokenBodiesAreRefusedWhereverTheyBreak) {
  const std::vector<std::string> bodies{
      "",
      " ",
      "{",
      "}",
      "nul",
      "null",
      "5",
      "\"x\"",
      "[]",
      "{\"model\"",
      "{\"model\":",
      R"({"model":"m")",
      R"({"model":"m",})",
      R"({"model":"m" "prompt":"x"})",
      R"({"model":"m","prompt":"x"}x)",
      R"({"model":"m","prompt":"x"}{})",
      R"({"model":"m","prompt":"x","user":"\ud800"})",
      R"({"model":"m","prompt":"\x"})",
      "{\"model\":\"m\",\"prompt\":\"a\nb\"}",
      "{\"model\":\"m\",\"prompt\":\"a\x01\"}",
      "{\"model\":\"m\",\"prompt\":\"\xff\"}",
      "{\"model\":\"m\",\"prompt\":\"\xc3\"}",
      "{\"model\":\"m\",\"prompt\":\"x\",\"metadata\":{\"a\":tru}}",
      "{\"model\":\"m\",\"prompt\":\"x\",\"metadata\":{\"a\":01}}",
      "{\"model\":\"m\",\"prompt\":\"x\",\"metadata\":[1,]}",
      "{\"model\":\"m\",\"prompt\":\"x\",\"metadata\":\"\\u12\"}",
      "{\"model\":\"m\",\"prompt\":\"x\",\"n\":1.}",
      "{\"model\":\"m\",\"prompt\":\"x\",\"n\":- 1}",
      "{\"model\":\"m\",\"prompt\":\"x\",\"seed\":012345678901234567890}",
      std::string("{\"model\":\"m\",\"prompt\":\"a\0b\"}", 26)};
  for (const std::string& body : bodies) {
    const auto refused = parse(Endpoint::Completions, body);
    ASSERT_FALSE(refused.has_value()) << body;
    EXPECT_EQ(refused.error().code, ErrorCode::InvalidRequest) << body;
  }
}

TEST(RequestParsing, NestingIsBounded) {
  const auto nested = [](int depth) {
    return "\"metadata\":" + std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_TRUE(chat(nested(json::kMaxDepth - 1)).has_value());
  expect_refused(chat(nested(json::kMaxDepth)), {"deep", "", "nested deeper than 128"});
  EXPECT_FALSE(chat(nested(100000)).has_value());
}

TEST(RequestParsing, AReaderServesManyBodies) {
  JsonReader reader;
  const ApiOptions options;
  std::string good = chat_body();
  std::string bad = R"({"model":5})";
  std::string big = completion_body(R"("metadata":")" + std::string(600000, 'x') + "\"");
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(parse_request(Endpoint::ChatCompletions, reader, good, options).has_value());
    EXPECT_FALSE(parse_request(Endpoint::ChatCompletions, reader, bad, options).has_value());
    EXPECT_TRUE(parse_request(Endpoint::Completions, reader, big, options).has_value());
  }
}

TEST(RequestParsing, ForcedUsageConcernsStreamsOnly) {
  const ApiOptions options{.force_include_usage = true};
  const auto stream = chat(R"("stream":true,"stream_options":{"include_usage":false})", options);
  ASSERT_TRUE(stream.has_value());
  EXPECT_TRUE(stream->include_usage);
  const auto unary = chat("", options);
  ASSERT_TRUE(unary.has_value());
  EXPECT_FALSE(unary->include_usage);
}

TEST(RequestParsing, RoutingConstraintsAreASetAndWeights) {
  const auto body = chat(R"("nvext":{"routing_constraints":{"required_taints":["b","a","b"],
      "preferred_taints":{"x":1,"y":-0.5,"x":2}}})");
  ASSERT_TRUE(body.has_value()) << body.error().message;
  EXPECT_EQ(body->constraints,
            (routing::RoutingConstraints{
                .required_taints = {"b", "a"},
                .preferred_taints = {{.name = "x", .weight = 2}, {.name = "y", .weight = -0.5}}}));
  for (const std::string neutral : {"null", "{}", R"({"required_taints":null})",
                                    R"({"required_taints":[],"preferred_taints":{}})"}) {
    const auto none = chat(R"("nvext":{"routing_constraints":)" + neutral + "}");
    ASSERT_TRUE(none.has_value()) << none.error().message;
    EXPECT_EQ(none->constraints, routing::RoutingConstraints());
  }
  std::string required;
  std::string preferred;
  for (std::size_t i = 0; i <= kMaxTaints; ++i) {
    required += (i == 0 ? "" : ",") + fmt::format("\"t{}\"", i);
    preferred += (i == 0 ? "" : ",") + fmt::format("\"t{}\":1", i);
  }
  for (const std::string& many :
       {"\"required_taints\":[" + required + "]", "\"preferred_taints\":{" + preferred + "}"}) {
    const auto refused = chat(R"("nvext":{"routing_constraints":{)" + many + "}}");
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("at most 64 taints"));
  }
  const auto dropped =
      chat(R"("nvext":{"routing_constraints":{"required_taints":["a"]}})", {.disable_nvext = true});
  ASSERT_TRUE(dropped.has_value());
  EXPECT_EQ(dropped->constraints, routing::RoutingConstraints());
}

TEST(RequestParsing, PinsComeFromNvextAndHeadersWin) {
  auto pinned = chat(R"("nvext":{"backend_instance_id":11,"dp_rank":2,"cache_salt":"n"},
      "cache_salt":"top")");
  ASSERT_TRUE(pinned.has_value()) << pinned.error().message;
  EXPECT_EQ(pinned->worker_id, 11U);
  EXPECT_EQ(pinned->data_parallel_rank, 2U);
  EXPECT_EQ(pinned->cache_salt, "n");
  const auto both =
      chat(R"("nvext":{"backend_instance_id":11,"decode_worker_id":12,"prefill_worker_id":13,)"
           R"("prefill_dp_rank":1})");
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->worker_id, 12U);
  EXPECT_EQ(both->prefill_worker_id, 13U);
  EXPECT_EQ(both->prefill_rank, 1U);

  const ApiOptions options;
  ASSERT_TRUE(apply_headers({{"x-worker-instance-id", "99"},
                             {"x-dynamo-worker-instance-id", "77"},
                             {"x-data-parallel-rank", "5"},
                             {"x-prefill-instance-id", "78"},
                             {"x-tenant-id", "t"}},
                            options, *pinned));
  EXPECT_EQ(pinned->worker_id, 77U);
  EXPECT_EQ(pinned->prefill_worker_id, 78U);
  EXPECT_EQ(pinned->data_parallel_rank, 5U);
  EXPECT_EQ(pinned->cache_salt, "t");
  ASSERT_TRUE(apply_headers({{"x-worker-instance-id", "9x"}, {"x-dp-rank", "4294967295"}}, options,
                            *pinned));
  EXPECT_EQ(pinned->worker_id, 77U) << "values that do not parse are ignored";
  EXPECT_EQ(pinned->data_parallel_rank, 5U) << "the highest rank means none";

  const ApiOptions off{.disable_nvext = true};
  auto dropped = chat(R"("nvext":{"backend_instance_id":11,"dp_rank":2,"cache_salt":"n"})", off);
  ASSERT_TRUE(dropped.has_value());
  ASSERT_TRUE(apply_headers({{"x-worker-instance-id", "99"}, {"x-dp-rank", "1"}}, off, *dropped));
  EXPECT_FALSE(dropped->worker_id.has_value());
  EXPECT_FALSE(dropped->data_parallel_rank.has_value());
  EXPECT_EQ(dropped->cache_salt, "n");
}

// The range is that of chat's `top_logprobs`.
TEST(CompletionRequest, XV6LogprobsGoUpToTwenty) {
  for (const char* count : {"0", "20"}) {
    EXPECT_TRUE(completion(std::string(R"("logprobs":)") + count)) << count;
  }
  const auto refused = completion(R"("logprobs":21)");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::InvalidRequest);
  EXPECT_EQ(refused.error().param, "logprobs");
}

TEST(ChatRequest, ATenantThatNoEngineCouldReadIsTheClientsMistake) {
  for (const std::string& tenant : {std::string("\xff"), std::string(kMaxSaltBytes + 1, 'x')}) {
    auto body = chat("");
    ASSERT_TRUE(body.has_value());
    const Result<> applied = apply_headers({{"x-tenant-id", tenant}}, {}, *body);
    ASSERT_FALSE(applied.has_value());
    EXPECT_EQ(applied.error().code, ErrorCode::InvalidRequest);
    EXPECT_EQ(applied.error().param, "x-tenant-id");
  }
  auto body = chat("");
  ASSERT_TRUE(apply_headers({{"x-tenant-id", std::string(kMaxSaltBytes, 'x')}}, {}, *body));
  EXPECT_FALSE(chat(R"("nvext":{"cache_salt":")" + std::string(kMaxSaltBytes + 1, 'x') + R"("})"));
}

}  // namespace
}  // namespace fairlead::api::openai
