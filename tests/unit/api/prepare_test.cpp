#include "api/openai/prepare.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/serving_fixture.hpp"

namespace fairlead::api::openai {
namespace {

using observe::Endpoint;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr engine::TokenId kEos = 2607;

class PrepareTest : public ::testing::Test {
 protected:
  Prepared run(Endpoint endpoint, std::string body) {
    body.reserve(body.size() + net::http::kBodyPadding);
    PrepareInput input;
    input.endpoint = endpoint;
    input.models = served_models({served_});
    return prepare(input, body, reader_);
  }
  Prepared chat(const std::string& extra = {}) {
    return run(Endpoint::ChatCompletions,
               R"({"model":"m","messages":[{"role":"user","content":"Hello"}])" +
                   (extra.empty() ? extra : "," + extra) + "}");
  }
  Prepared completion(const std::string& prompt, const std::string& extra = {}) {
    return run(Endpoint::Completions,
               R"({"model":"m","prompt":)" + prompt + (extra.empty() ? extra : "," + extra) + "}");
  }
  serving::GenerationSpec good(Prepared prepared) {
    EXPECT_TRUE(prepared.spec.has_value()) << prepared.spec.error().message;
    return prepared.spec ? std::move(*prepared.spec) : serving::GenerationSpec();
  }
  Error bad(const Prepared& prepared) {
    EXPECT_FALSE(prepared.spec.has_value());
    return prepared.spec ? Error() : prepared.spec.error();
  }
  std::vector<engine::TokenId> ids(std::string_view text) {
    std::vector<engine::TokenId> out;
    EXPECT_TRUE(served_.assets->tokenizer->encode(text, false, out).has_value());
    return out;
  }
  void change_assets(const std::function<void(chat::ModelAssets&)>& change) {
    auto copy = std::make_shared<chat::ModelAssets>(*served_.assets);
    change(*copy);
    served_.assets = copy;
  }

  ServedModel served_{make_model("m", 64), demo_assets()};
  JsonReader reader_;
};

TEST_F(PrepareTest, AChatIsRenderedTokenizedAndFillsTheContext) {
  const Prepared prepared = chat();
  EXPECT_EQ(prepared.model, "m");
  const auto spec = good(prepared);
  ASSERT_EQ(spec.prompts.size(), 1U);
  EXPECT_EQ(spec.prompts[0], ids("<|user|>Hello<|assistant|>"));
  EXPECT_EQ(spec.request.stop.max_tokens, 64 - spec.prompts[0].size());
  EXPECT_THAT(spec.request.stop.stop_token_ids, ElementsAre(kEos));
  EXPECT_THAT(spec.user_stop_token_ids, IsEmpty());
  EXPECT_TRUE(spec.skip_special_tokens);
  EXPECT_EQ(spec.model->name, "m");
}

TEST_F(PrepareTest, CompletionsTakeTextAndIds) {
  auto spec = good(completion(R"(["Hello","a b"])", R"("n":2)"));
  EXPECT_THAT(spec.prompts, ElementsAre(ids("Hello"), ids("a b")));
  EXPECT_EQ(spec.n, 2U);
  EXPECT_EQ(spec.request.stop.max_tokens, 16U);
  spec = good(completion("[[5,6],[7]]", R"("max_tokens":3)"));
  EXPECT_THAT(spec.prompts, ElementsAre(ElementsAre(5, 6), ElementsAre(7)));
  EXPECT_EQ(spec.request.stop.max_tokens, 3U);
}

TEST_F(PrepareTest, SamplingIsRequestOverModelOverNeutral) {
  auto sampling = good(chat()).request.sampling;
  EXPECT_EQ(sampling.temperature, 1.0F);
  EXPECT_EQ(sampling.top_p, 1.0F);
  EXPECT_EQ(sampling.top_k, 0U);
  EXPECT_EQ(sampling.min_p, 0.0F);
  EXPECT_EQ(sampling.repetition_penalty, 1.0F);
  EXPECT_FALSE(sampling.seed.has_value());

  change_assets([](chat::ModelAssets& assets) {
    assets.defaults = {.temperature = 0.5,
                       .top_p = 0.75,
                       .top_k = 20,
                       .min_p = 0.125,
                       .repetition_penalty = 1.5,
                       .max_new_tokens = 7};
  });
  auto spec = good(chat());
  EXPECT_EQ(spec.request.sampling.temperature, 0.5F);
  EXPECT_EQ(spec.request.sampling.top_p, 0.75F);
  EXPECT_EQ(spec.request.sampling.top_k, 20U);
  EXPECT_EQ(spec.request.sampling.min_p, 0.125F);
  EXPECT_EQ(spec.request.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(spec.request.stop.max_tokens, 7U);
  spec = good(chat(R"("temperature":0,"top_p":1,"top_k":-1,"min_p":0,"repetition_penalty":1,
      "max_tokens":9,"seed":5,"presence_penalty":1,"frequency_penalty":-1)"));
  EXPECT_EQ(spec.request.sampling.temperature, 0.0F);
  EXPECT_EQ(spec.request.sampling.top_p, 1.0F);
  EXPECT_EQ(spec.request.sampling.top_k, 0U);
  EXPECT_EQ(spec.request.sampling.min_p, 0.0F);
  EXPECT_EQ(spec.request.sampling.repetition_penalty, 1.0F);
  EXPECT_EQ(spec.request.stop.max_tokens, 9U);
  EXPECT_EQ(spec.request.sampling.seed, 5);
  EXPECT_EQ(spec.request.sampling.presence_penalty, 1.0F);
  EXPECT_EQ(spec.request.sampling.frequency_penalty, -1.0F);
  EXPECT_EQ(good(completion("\"a\"")).request.stop.max_tokens, 16U)
      << "the model's own length concerns chat";

  change_assets([](chat::ModelAssets& assets) { assets.defaults.top_k = -1; });
  EXPECT_EQ(good(chat()).request.sampling.top_k, 0U);
}

TEST_F(PrepareTest, StopsAreTheUsersAndTheModels) {
  auto spec = good(chat(R"("stop":["x"],"stop_token_ids":[9,5,9],"min_tokens":2,
      "include_stop_str_in_output":true,"skip_special_tokens":false)"));
  EXPECT_THAT(spec.request.stop.stop_token_ids, ElementsAre(5, 9, kEos));
  EXPECT_THAT(spec.user_stop_token_ids, ElementsAre(9, 5, 9));
  EXPECT_THAT(spec.stop_strings, ElementsAre("x"));
  EXPECT_EQ(spec.request.stop.min_tokens, 2U);
  EXPECT_TRUE(spec.include_stop);
  EXPECT_FALSE(spec.skip_special_tokens);
  spec = good(chat(R"("ignore_eos":true,"stop_token_ids":[5])"));
  EXPECT_THAT(spec.request.stop.stop_token_ids, ElementsAre(5)) << "the user's stops keep working";
  EXPECT_TRUE(spec.request.stop.ignore_eos);
}

TEST_F(PrepareTest, TheContextIsTheSmallerKnownLimit) {
  EXPECT_EQ(good(completion("[1]", R"("max_tokens":63)")).request.stop.max_tokens, 63U);
  const Error error = bad(completion("[1]", R"("max_tokens":64)"));
  EXPECT_EQ(error.code, ErrorCode::ContextLengthExceeded);
  EXPECT_EQ(error.param, "max_tokens");
  EXPECT_THAT(error.message, HasSubstr("maximum context length is 64 tokens"));

  std::string full = "[1";
  for (int i = 1; i < 64; ++i) {
    full += ",1";
  }
  const Error longer = bad(completion(full + "]"));
  EXPECT_EQ(longer.code, ErrorCode::ContextLengthExceeded);
  EXPECT_EQ(longer.param, "prompt");
  EXPECT_THAT(longer.message, HasSubstr("maximum context length is 64 tokens"));
  EXPECT_THAT(longer.message, HasSubstr("64 input tokens"));
  std::string nearly = full.substr(0, full.size() - 2);  // 63 tokens
  EXPECT_EQ(good(completion(nearly + "]")).request.stop.max_tokens, 1U)
      << "the default of 16 shrinks to what fits";

  change_assets([](chat::ModelAssets& assets) { assets.context_length = 32; });
  EXPECT_THAT(bad(completion("[1]", R"("max_tokens":32)")).message, HasSubstr("is 32 tokens"));
  served_.model = make_model("m", 0);
  EXPECT_THAT(bad(completion("[1]", R"("max_tokens":32)")).message, HasSubstr("is 32 tokens"));
  change_assets([](chat::ModelAssets& assets) { assets.context_length = 0; });
  EXPECT_EQ(good(completion("[1]", R"("max_tokens":99999)")).request.stop.max_tokens, 99999U);
}

TEST_F(PrepareTest, AHopelesslyLongPromptIsRefusedWithoutTokenizingIt) {
  const std::string text(100'000, 'x');
  const Error completions = bad(completion("[\"short\",\"" + text + "\"]"));
  EXPECT_EQ(completions.code, ErrorCode::ContextLengthExceeded);
  EXPECT_EQ(completions.param, "prompt");
  EXPECT_THAT(completions.message, HasSubstr("maximum context length is 64 tokens"));
  EXPECT_THAT(completions.message, HasSubstr("at least "));
  const Error chats =
      bad(run(Endpoint::ChatCompletions,
              R"({"model":"m","messages":[{"role":"user","content":")" + text + "\"}]}"));
  EXPECT_EQ(chats.code, ErrorCode::ContextLengthExceeded);
  EXPECT_EQ(chats.param, "messages");
  EXPECT_THAT(chats.message, HasSubstr("at least "));

  // Where only tokens can tell, they do.
  const Error near = bad(completion("\"" + std::string(200, 'x') + "\""));
  EXPECT_EQ(near.code, ErrorCode::ContextLengthExceeded);
  EXPECT_THAT(near.message, ::testing::Not(HasSubstr("at least")));
  const auto cut = good(completion("\"" + text + "\"", R"("truncate_prompt_tokens":10)"));
  EXPECT_EQ(cut.prompts.at(0).size(), 10U);
  served_.model = make_model("m", 0);
  change_assets([](chat::ModelAssets& assets) { assets.context_length = 0; });
  EXPECT_GT(good(completion("\"" + text + "\"")).prompts.at(0).size(), 64U);
}

TEST_F(PrepareTest, EndsEarlyWhenNobodyWaits) {
  std::string body = R"({"model":"m","prompt":"Hello"})";
  body.reserve(body.size() + net::http::kBodyPadding);
  PrepareInput input;
  input.endpoint = Endpoint::Completions;
  input.models = served_models({served_});
  std::stop_source stop;
  EXPECT_TRUE(prepare(input, body, reader_, stop.get_token()).spec.has_value());
  stop.request_stop();
  EXPECT_EQ(bad(prepare(input, body, reader_, stop.get_token())).code, ErrorCode::ClientGone);
}

TEST_F(PrepareTest, TokenIdsMustBeInTheVocabulary) {
  const std::uint32_t size = served_.assets->vocab_size;
  ASSERT_GT(size, 0U);
  const std::string last = std::to_string(size - 1);
  const std::string out = std::to_string(size);
  good(completion("[" + last + "]", R"("stop_token_ids":[)" + last + R"(],"logit_bias":{")" + last +
                                        R"(":1},"allowed_token_ids":[)" + last + "]"));
  const std::vector<std::pair<std::string, std::string>> rows{
      {"stop_token_ids", R"("stop_token_ids":[)" + out + "]"},
      {"stop_token_ids", R"("stop":[)" + out + "]"},
      {"logit_bias", R"("logit_bias":{")" + out + R"(":1})"},
      {"allowed_token_ids", R"("allowed_token_ids":[)" + out + "]"},
      {"bad_words_token_ids", R"("bad_words_token_ids":[[1,)" + out + "]]"}};
  for (const auto& [field, extra] : rows) {
    const Error error = bad(completion("[1]", extra));
    EXPECT_EQ(error.code, ErrorCode::InvalidRequest) << extra;
    EXPECT_EQ(error.param, field) << extra;
    EXPECT_THAT(error.message, HasSubstr("token id " + out + " is out of vocabulary")) << extra;
  }
  EXPECT_EQ(bad(completion("[1," + out + "]")).param, "prompt");
  EXPECT_EQ(bad(completion("[[1],[" + out + "]]")).param, "prompt");
}

TEST_F(PrepareTest, TextMustHaveTokensWithRowsInTheModel) {
  change_assets([](chat::ModelAssets& assets) { assets.vocab_size = 1; });
  EXPECT_EQ(bad(completion("\"Hello\"")).param, "prompt");
  EXPECT_THAT(bad(completion("\"Hello\"")).message, HasSubstr("out of vocabulary; its size is 1"));
  EXPECT_EQ(bad(chat()).param, "messages");
  EXPECT_EQ(bad(completion("[0]", R"("bad_words":["Hello"])")).param, "bad_words");
  // Models whose size is not known go by the tokenizer.
  change_assets([](chat::ModelAssets& assets) { assets.vocab_size = 0; });
  good(completion("\"Hello\""));
  EXPECT_EQ(bad(completion("[1000000]")).param, "prompt");
}

TEST_F(PrepareTest, ARepeatedBiasTakesItsLastValue) {
  const auto spec = good(completion("[1]", R"("logit_bias":{"9":1,"3":2,"9":-5})"));
  EXPECT_THAT(spec.request.sampling.logit_bias, ElementsAre(Pair(3, 2.0F), Pair(9, -5.0F)));
}

TEST_F(PrepareTest, BadWordsBecomeTokensWithAndWithoutABlank) {
  const auto spec = good(completion("[1]", R"("bad_words":["time"],"bad_words_token_ids":[[7]])"));
  EXPECT_THAT(spec.request.sampling.bad_words,
              ::testing::UnorderedElementsAre(ElementsAre(7), ids("time"), ids(" time")));
}

TEST_F(PrepareTest, PromptsCanBeTruncatedOnEitherSide) {
  auto spec = good(completion("[1,2,3,4]", R"("truncate_prompt_tokens":2)"));
  EXPECT_THAT(spec.prompts, ElementsAre(ElementsAre(3, 4)));
  spec = good(completion("[1,2,3,4]", R"("truncate_prompt_tokens":3,"truncation_side":"right")"));
  EXPECT_THAT(spec.prompts, ElementsAre(ElementsAre(1, 2, 3)));
  spec = good(completion("[1,2,3,4]", R"("truncate_prompt_tokens":-1,"max_tokens":61)"));
  EXPECT_THAT(spec.prompts, ElementsAre(ElementsAre(2, 3, 4)));
  EXPECT_EQ(bad(completion("[1]", R"("truncate_prompt_tokens":60,"max_tokens":10)")).param,
            "truncate_prompt_tokens");
}

TEST_F(PrepareTest, TheRestReachesTheEngineRequest) {
  const auto spec = good(chat(R"("priority":-3,"cache_salt":"s","session_id":"x",
      "nvext":{"decode_worker_id":12,"dp_rank":3})"));
  EXPECT_EQ(spec.request.priority, -3);
  EXPECT_EQ(spec.request.cache_salt, "s");
  EXPECT_EQ(spec.request.session_id, "x");
  EXPECT_EQ(spec.worker_id, 12U);
  EXPECT_EQ(spec.request.data_parallel_rank, 3U);
}

TEST_F(PrepareTest, ModelsThatCannotAnswerAreTold) {
  const auto ask = [&](const std::string& model) {
    return run(Endpoint::Completions, R"({"model":")" + model + R"(","prompt":"a"})");
  };
  const Prepared unknown = ask("other");
  EXPECT_EQ(bad(unknown).code, ErrorCode::ModelNotFound);
  EXPECT_EQ(bad(unknown).param, "model");
  EXPECT_EQ(unknown.model, "") << "no metric label from a client";

  auto aliased = make_model("m");
  aliased->aliases = {"other"};
  served_.model = aliased;
  EXPECT_EQ(ask("other").model, "m");

  served_.assets = nullptr;
  const Prepared loading = ask("m");
  EXPECT_EQ(bad(loading).code, ErrorCode::ModelNotReady);
  EXPECT_EQ(loading.model, "m");

  served_.assets = demo_assets();
  served_.model = bare_model("m");
  EXPECT_EQ(bad(ask("m")).code, ErrorCode::ModelNotReady);

  std::string body = R"({"model":"m","prompt":"a"})";
  EXPECT_EQ(bad(prepare(PrepareInput(), body, reader_)).code, ErrorCode::UnsupportedField)
      << "chat does not know `prompt`";
  PrepareInput none;
  none.endpoint = Endpoint::Completions;
  EXPECT_EQ(bad(prepare(none, body, reader_)).code, ErrorCode::ModelNotReady);
  EXPECT_EQ(bad(run(Endpoint::Completions, R"({"model":"other","prompt":"a","n":0})")).code,
            ErrorCode::InvalidRequest)
      << "a wrong field comes before an unknown model";
}

TEST_F(PrepareTest, TemplateTroubleIsTheClients) {
  change_assets([](chat::ModelAssets& assets) { assets.chat_template = nullptr; });
  EXPECT_EQ(bad(chat()).param, "messages");
  EXPECT_EQ(bad(completion("\"\"")).param, "prompt") << "no tokens at all";
}

}  // namespace
}  // namespace fairlead::api::openai
