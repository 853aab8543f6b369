#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "api/serving_fixture.hpp"
#include "base/json.hpp"
#include "base/utf8.hpp"

namespace fairlead::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Ids = std::vector<engine::TokenId>;

// The demo model: "a", the halves of "😀", "b", " S" "T" "O" "P", and its end.
constexpr engine::TokenId kEos = 2607;
const Ids kOutput{64, 265, 310, 2609, 65, 1096, 51, 64, 1096, 51, 46, 47, 65};

engine::TokenLogprob logprob_of(engine::TokenId id) {
  const float own = -0.5F - static_cast<float>(id % 8);
  return {.logprob = own,
          .rank = 1,
          .candidates = {{id, own, 1}, {id + 1, own - 1, 2}, {id + 2, own - 2, 3}},
          .missing = false};
}

std::vector<engine::TokenLogprob> logprobs_of(const Ids& ids) {
  std::vector<engine::TokenLogprob> out(ids.size());
  std::ranges::transform(ids, out.begin(), logprob_of);
  return out;
}

class TokenAnswersTest : public ServingFixture {
 protected:
  TokenAnswersTest() { serve_demo(); }

  // The whole answer to a request whose choices all get `ids` in messages of `piece`.
  std::string answer(const std::string& path, const std::string& body, const Ids& ids,
                     std::size_t piece,
                     engine::FinishReason reason = engine::FinishReason::Length) {
    const std::size_t first = engine_.streams.size();
    FakeExchange& exchange = post(path, body);
    for (std::size_t at = 0; at < ids.size(); at += piece) {
      const Ids part(ids.begin() + static_cast<std::ptrdiff_t>(at),
                     ids.begin() + static_cast<std::ptrdiff_t>(std::min(at + piece, ids.size())));
      for (std::size_t i = first; i < engine_.streams.size(); ++i) {
        send(i, part, at == 0, at + piece >= ids.size() ? &reason : nullptr);
      }
    }
    EXPECT_TRUE(exchange.finished()) << body;
    return exchange.body;
  }

  void send(std::size_t i, const Ids& ids, bool first, const engine::FinishReason* reason) {
    in_turn([&] {
      auto& stream = engine_.streams[i];
      if (!stream.sink) {
        return;
      }
      const auto& output = stream.request.output;
      if (first && output.prompt_logprobs) {
        const auto prompt = logprobs_of(stream.request.prompt);
        stream.sink->on_prompt({.prompt_tokens = 1, .logprobs = prompt});
      }
      engine::Finish finish;
      if (reason) {
        finish.reason = *reason;
      }
      const auto logprobs = logprobs_of(output.wants_logprobs() ? ids : Ids());
      stream.sink->on_tokens({ids, logprobs, reason ? &finish : nullptr});
    });
  }

  json::Value unary(const std::string& path, const std::string& body, const Ids& ids) {
    const std::string text = answer(path, body, ids, 3);
    const auto value = json::parse(text);
    EXPECT_TRUE(value) << text;
    return value ? *value : json::Value();
  }

  static constexpr const char* kChat = "/v1/chat/completions";
  static constexpr const char* kCompletions = "/v1/completions";
};

std::string chat_body(const std::string& extra) {
  return R"({"model":"demo","messages":[{"role":"user","content":"hi"}],"max_tokens":50)" +
         (extra.empty() ? extra : "," + extra) + "}";
}

std::string completion_body(const std::string& extra, const std::string& prompt = "\"ab\"") {
  return R"({"model":"demo","max_tokens":50,"prompt":)" + prompt +
         (extra.empty() ? extra : "," + extra) + "}";
}

std::vector<json::Value> chunks_of(const std::string& stream) {
  std::vector<json::Value> out;
  std::size_t at = 0;
  while (stream.compare(at, 6, "data: ") == 0) {
    const std::size_t end = stream.find("\n\n", at);
    const std::string data = stream.substr(at + 6, end - at - 6);
    at = end + 2;
    if (data == "[DONE]") {
      break;
    }
    auto value = json::parse(data);
    EXPECT_TRUE(value) << data;
    out.push_back(value ? std::move(*value) : json::Value());
  }
  return out;
}

// A stream as it would be if nothing but text had been asked for, without what always differs.
std::string plain(const std::string& stream) {
  std::string out;
  for (json::Value chunk : chunks_of(stream)) {
    json::Object& root = *chunk.as_object();
    for (const char* key : {"id", "created", "prompt_token_ids", "nvext"}) {
      root.erase(key);
    }
    for (json::Value& choice : *root.find("choices")->as_array()) {
      choice.as_object()->set("logprobs", json::Value());
      choice.as_object()->erase("token_ids");
      choice.as_object()->erase("prompt_token_ids");
    }
    out += json::dump(chunk) + "\n";
  }
  return out;
}

const json::Value& at(const json::Value& value, std::initializer_list<std::string_view> path) {
  static const json::Value null;
  const json::Value* here = &value;
  for (const std::string_view key : path) {
    if (const json::Array* array = here->as_array()) {
      const auto index = static_cast<std::size_t>(key.front() - '0');
      here = index < array->size() ? &(*array)[index] : nullptr;
    } else {
      here = here->find(key);
    }
    if (!here) {
      return null;
    }
  }
  return *here;
}

std::string dump_at(const json::Value& value, std::initializer_list<std::string_view> path) {
  return json::dump(at(value, path));
}

struct Told {
  std::string text;
  json::Array entries;  // chat
  std::map<std::string, json::Array> arrays;
  json::Array ids;
};

// What the chunks, or the one document, say about a choice.
Told told(const std::vector<json::Value>& documents, std::int64_t index) {
  Told out;
  const auto append = [](json::Array& to, const json::Value* from) {
    if (from && from->as_array()) {
      to.insert(to.end(), from->as_array()->begin(), from->as_array()->end());
    }
  };
  for (const json::Value& document : documents) {
    for (const json::Value& choice : *document.find("choices")->as_array()) {
      if (*choice.find("index")->as_int() != index) {
        continue;
      }
      for (const auto& path : {std::initializer_list<std::string_view>{"text"},
                               {"delta", "content"},
                               {"message", "content"}}) {
        const json::Value& text = at(choice, path);
        out.text += text.as_string() ? *text.as_string() : "";
      }
      const json::Value* logprobs = choice.find("logprobs");
      append(out.entries, logprobs->find("content"));
      for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
        append(out.arrays[key], logprobs->find(key));
      }
      append(out.ids, choice.find("token_ids"));
    }
  }
  return out;
}

std::string dump(const json::Array& array) { return json::dump(json::Value(array)); }

TEST_F(TokenAnswersTest, StreamsAreTheSameBytesButForWhatWasAskedFor) {
  const std::string rules =
      R"("stream":true,"n":2,"stream_options":{"include_usage":true,"continuous_usage_stats":true})";
  for (const std::string stop : {"", R"(,"stop":["STOP"])", R"(,"stop":"TOPS","min_tokens":3)",
                                 R"(,"stop":" STOP","include_stop_str_in_output":true)",
                                 R"(,"skip_special_tokens":false)", R"(,"stop_token_ids":[46])"}) {
    for (const bool chat : {true, false}) {
      const char* path = chat ? kChat : kCompletions;
      const auto body = [&](const std::string& extra) {
        const std::string all = fmt::format("{}{}{}", rules, stop, extra);
        return chat ? chat_body(all) : completion_body(all);
      };
      const std::string logprobs =
          chat ? R"(,"logprobs":true,"top_logprobs":2)" : R"(,"logprobs":2)";
      for (std::size_t piece = 1; piece <= kOutput.size(); ++piece) {
        const std::string without = plain(answer(path, body(""), kOutput, piece));
        EXPECT_THAT(without, HasSubstr("finish_reason"));
        for (const std::string& extra :
             {logprobs, std::string(R"(,"return_token_ids":true)"),
              logprobs + R"(,"return_token_ids":true,"nvext":{"extra_fields":["stop_reason"]})"}) {
          EXPECT_EQ(plain(answer(path, body(extra), kOutput, piece)), without)
              << body(extra) << piece;
        }
      }
    }
  }
}

TEST_F(TokenAnswersTest, EveryTokenHasOneEntryHoweverItCame) {
  for (const std::string rules :
       {"", R"(,"stop":["STOP"])", R"(,"stop":"OP","include_stop_str_in_output":true)",
        R"(,"stop":"a S","min_tokens":9)", R"(,"stop_token_ids":[47])"}) {
    for (const bool chat : {true, false}) {
      const char* path = chat ? kChat : kCompletions;
      const std::string logprobs = chat ? R"("logprobs":true,"top_logprobs":2)" : R"("logprobs":2)";
      const std::string asked = fmt::format(R"({},"return_token_ids":true{})", logprobs, rules);
      const auto body = [&](const std::string& extra) {
        return chat ? chat_body(asked + extra) : completion_body(asked + extra);
      };
      const json::Value folded = unary(path, body(""), kOutput);
      const Told whole = told({folded}, 0);
      const auto tokens = *at(folded, {"usage", "completion_tokens"}).as_int();
      EXPECT_EQ(std::ssize(whole.ids), tokens) << rules;
      EXPECT_EQ(dump(whole.ids), dump(json::Array(whole.ids.begin(), whole.ids.begin() + tokens)));
      if (chat) {
        EXPECT_EQ(std::ssize(whole.entries), tokens);
      }
      for (const auto& [key, array] : whole.arrays) {
        EXPECT_EQ(std::ssize(array), chat ? 0 : tokens) << key;
      }
      for (std::size_t piece = 1; piece <= kOutput.size(); ++piece) {
        const Told joined =
            told(chunks_of(answer(path, body(R"(,"stream":true)"), kOutput, piece)), 0);
        EXPECT_EQ(joined.text, whole.text) << rules << piece;
        EXPECT_EQ(dump(joined.ids), dump(whole.ids)) << rules << piece;
        EXPECT_EQ(dump(joined.entries), dump(whole.entries)) << rules << piece;
        for (const auto& [key, array] : whole.arrays) {
          EXPECT_EQ(dump(joined.arrays.at(key)), dump(array)) << key << rules << piece;
        }
      }
    }
  }
}

TEST_F(TokenAnswersTest, OffsetsPointIntoTheText) {
  const json::Value folded =
      unary(kCompletions, completion_body(R"("logprobs":0,"stop":"STOP")"), kOutput);
  EXPECT_EQ(dump_at(folded, {"choices", "0", "text"}), R"("a😀b STa ")");
  EXPECT_EQ(dump_at(folded, {"choices", "0", "logprobs", "text_offset"}),
            "[0,1,1,2,2,3,5,6,7,8,8,8]")
      << "what a stop string took away begins where the text ends";
  EXPECT_EQ(dump_at(folded, {"choices", "0", "logprobs", "tokens"}),
            "[\"a\",\"\uFFFD\",\"\uFFFD\uFFFD\",\"<|user|>\",\"b\",\" S\",\"T\",\"a\",\" S\",\"T\","
            "\"O\",\"P\"]");
  EXPECT_EQ(dump_at(folded, {"choices", "0", "logprobs", "top_logprobs", "0"}), R"({"a":-0.5})");
  EXPECT_EQ(dump_at(folded, {"usage", "completion_tokens"}), "12");
}

TEST_F(TokenAnswersTest, ChatSaysWhatOpenAiDoes) {
  const json::Value folded =
      unary(kChat, chat_body(R"("logprobs":true,"top_logprobs":2)"), {64, kEos});
  EXPECT_EQ(dump_at(folded, {"choices", "0", "logprobs"}),
            R"({"content":[{"token":"a","logprob":-0.5,"bytes":[97],"token_id":64,"top_logprobs":)"
            R"([{"token":"a","logprob":-0.5,"bytes":[97]},)"
            R"({"token":"b","logprob":-1.5,"bytes":[98]}]},)"
            R"({"token":"<|end|>","logprob":-7.5,"bytes":[60,124,101,110,100,124,62],)"
            R"("token_id":2607,"top_logprobs":[{"token":"<|end|>","logprob":-7.5,)"
            R"("bytes":[60,124,101,110,100,124,62]},{"token":"<|system|>","logprob":-8.5,)"
            R"("bytes":[60,124,115,121,115,116,101,109,124,62]}]}],"refusal":null})");
  EXPECT_EQ(engine_.streams[0].request.output.logprobs, 2U);
  const json::Value bare = unary(kChat, chat_body(R"("logprobs":true)"), {64});
  EXPECT_EQ(dump_at(bare, {"choices", "0", "logprobs", "content", "0", "top_logprobs"}), "[]");
  EXPECT_EQ(engine_.streams[1].request.output.logprobs, 0U);
  const json::Value off = unary(kChat, chat_body(R"("logprobs":false)"), {64});
  EXPECT_EQ(dump_at(off, {"choices", "0", "logprobs"}), "null");
  EXPECT_FALSE(engine_.streams[2].request.output.wants_logprobs());
}

TEST_F(TokenAnswersTest, ChosenTokensAreListedBesideTheSampledOne) {
  const json::Value folded =
      unary(kCompletions, completion_body(R"("logprobs":0,"logprob_token_ids":[64,65,66])"), {64});
  EXPECT_THAT(engine_.streams[0].request.output.logprob_token_ids, ElementsAre(64, 65, 66));
  EXPECT_FALSE(engine_.streams[0].request.output.logprobs);
  EXPECT_EQ(dump_at(folded, {"choices", "0", "logprobs", "top_logprobs"}),
            R"([{"a":-0.5,"b":-1.5,"c":-2.5}])");
  EXPECT_THAT(
      answer(kCompletions, completion_body(R"("logprobs":0,"logprob_token_ids":[99999])"), {}, 1),
      HasSubstr(R"("param":"logprob_token_ids")"));
}

TEST_F(TokenAnswersTest, OneSequenceOfAPromptScoresItForAll) {
  const json::Value folded = unary(
      kCompletions, completion_body(R"("prompt_logprobs":1,"n":2)", "[[64,65],[64,66]]"), {64});
  ASSERT_EQ(engine_.streams.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(engine_.streams[i].request.output.prompt_logprobs.has_value(), i % 2 == 0) << i;
    EXPECT_EQ(at(folded, {"choices", std::to_string(i), "prompt_logprobs"}).as_array()->size(), 2U);
  }
  EXPECT_EQ(dump_at(folded, {"choices", "1", "prompt_logprobs"}),
            dump_at(folded, {"choices", "0", "prompt_logprobs"}));
  EXPECT_THAT(dump_at(folded, {"choices", "3", "prompt_logprobs"}), HasSubstr(R"("66":)"));
}

TEST_F(TokenAnswersTest, PromptLogprobsStartWithNull) {
  const std::string expected = R"([null,{"65":{"logprob":-1.5,"rank":1,"decoded_token":"b"},)"
                               R"("66":{"logprob":-2.5,"rank":2,"decoded_token":"c"}}])";
  const json::Value folded =
      unary(kCompletions, completion_body(R"("prompt_logprobs":1)", "[64,65]"), {64});
  EXPECT_EQ(dump_at(folded, {"choices", "0", "prompt_logprobs"}), expected);
  EXPECT_EQ(dump_at(folded, {"choices", "0", "logprobs"}), "null");
  const json::Value chatted = unary(kChat,
                                    chat_body(R"("prompt_logprobs":-1,"n":2,)"
                                              R"("nvext":{"extra_fields":["prompt_logprobs"]})"),
                                    {64});
  EXPECT_EQ(engine_.streams[1].request.output.prompt_logprobs, engine::kAllCandidates);
  ASSERT_TRUE(at(chatted, {"prompt_logprobs"}).as_array());
  EXPECT_EQ(at(chatted, {"prompt_logprobs"}).as_array()->size(),
            engine_.streams[1].request.prompt.empty()
                ? *at(chatted, {"usage", "prompt_tokens"}).as_int()
                : std::ssize(engine_.streams[1].request.prompt));
  EXPECT_EQ(dump_at(chatted, {"nvext", "prompt_logprobs"}), dump_at(chatted, {"prompt_logprobs"}));
  EXPECT_TRUE(at(chatted, {"choices", "0", "prompt_logprobs"}).is_null());
  // A stream accepts zero, does not ask and does not tell, unless `nvext` has a place for it.
  const std::string streamed =
      answer(kCompletions, completion_body(R"("prompt_logprobs":0,"stream":true)"), {64}, 1);
  EXPECT_THAT(streamed, Not(HasSubstr("prompt_logprobs")));
  EXPECT_FALSE(engine_.streams.back().request.output.prompt_logprobs);
  const auto chunks =
      chunks_of(answer(kCompletions,
                       completion_body(R"("prompt_logprobs":0,"stream":true,)"
                                       R"("nvext":{"extra_fields":["prompt_logprobs"]})",
                                       "[64,65]"),
                       {64}, 1));
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_TRUE(at(chunks[0], {"nvext"}).is_null());
  EXPECT_EQ(dump_at(chunks[1], {"nvext"}),
            R"({"prompt_logprobs":[null,{"65":{"logprob":-1.5,"rank":1,"decoded_token":"b"}}]})");
}

TEST_F(TokenAnswersTest, EchoComesFirstWithItsEntries) {
  const std::string asked = R"("echo":true,"logprobs":1)";
  const json::Value folded = unary(kCompletions, completion_body(asked, R"("a😀b")"), {64, 51});
  EXPECT_EQ(engine_.streams[0].request.output.prompt_logprobs, 1U);
  EXPECT_EQ(dump_at(folded, {"choices", "0", "text"}), R"("a😀baT")");
  const auto tokens = "[\"a\",\"\uFFFD\",\"\uFFFD\uFFFD\",\"b\",\"a\",\"T\"]";
  EXPECT_EQ(dump_at(folded, {"choices", "0", "logprobs", "tokens"}), tokens);
  EXPECT_EQ(dump_at(folded, {"choices", "0", "logprobs", "text_offset"}), "[0,1,1,2,3,4]");
  EXPECT_EQ(dump_at(folded, {"choices", "0", "logprobs", "token_logprobs"}),
            "[null,-1.5,-6.5,-1.5,-0.5,-3.5]");
  EXPECT_EQ(dump_at(folded, {"choices", "0", "logprobs", "top_logprobs", "0"}), "null");
  EXPECT_EQ(dump_at(folded, {"choices", "0", "logprobs", "top_logprobs", "3"}),
            R"({"b":-1.5,"c":-2.5})");
  EXPECT_TRUE(at(folded, {"choices", "0", "prompt_logprobs"}).is_null()) << "not asked for";
  EXPECT_EQ(dump_at(folded, {"usage", "completion_tokens"}), "2");

  const auto chunks = chunks_of(
      answer(kCompletions,
             completion_body(asked + R"(,"stream":true,"return_token_ids":true)", R"("a😀b")"),
             {64, 51}, 1));
  ASSERT_EQ(chunks.size(), 3U);
  EXPECT_EQ(dump_at(chunks[0], {"choices", "0", "text"}), R"("a😀ba")");
  EXPECT_EQ(dump_at(chunks[0], {"choices", "0", "prompt_token_ids"}), "[64,265,310,65]");
  EXPECT_EQ(dump_at(chunks[0], {"choices", "0", "token_ids"}), "[64]");
  EXPECT_EQ(dump_at(chunks[0], {"choices", "0", "logprobs", "text_offset"}), "[0,1,1,2,3]");
  EXPECT_EQ(dump_at(chunks[1], {"choices", "0", "text"}), R"("T")");
  EXPECT_EQ(dump_at(chunks[1], {"choices", "0", "logprobs", "text_offset"}), "[4]");
  EXPECT_TRUE(at(chunks[1], {"choices", "0", "prompt_token_ids"}).is_null());
}

TEST_F(TokenAnswersTest, EchoOfIdsAndOfEveryChoice) {
  const json::Value folded =
      unary(kCompletions, completion_body(R"("echo":true,"n":2)", R"([[64,2609],[65]])"), {51});
  EXPECT_FALSE(engine_.streams[0].request.output.prompt_logprobs);
  std::vector<std::string> texts;
  for (const json::Value& choice : *folded.find("choices")->as_array()) {
    texts.push_back(*choice.find("text")->as_string());
    EXPECT_TRUE(choice.find("logprobs")->is_null());
  }
  EXPECT_THAT(texts, ElementsAre("a<|user|>T", "a<|user|>T", "bT", "bT"));
}

TEST_F(TokenAnswersTest, OnlyThePromptCanBeScored) {
  const auto body = [](const std::string& extra) {
    return R"({"model":"demo","prompt":"ab a","max_tokens":0,"echo":true,"logprobs":0)" + extra +
           "}";
  };
  const json::Value folded = unary(kCompletions, body(""), {64});
  EXPECT_EQ(engine_.streams[0].request.stop.max_tokens, 1U);
  EXPECT_EQ(dump_at(folded, {"choices", "0", "text"}), R"("ab a")");
  EXPECT_EQ(dump_at(folded, {"choices", "0", "finish_reason"}), R"("length")");
  EXPECT_EQ(dump_at(folded, {"usage", "completion_tokens"}), "0");
  EXPECT_EQ(dump_at(folded, {"choices", "0", "logprobs", "text_offset"}), "[0,2]");
  const auto chunks = chunks_of(answer(kCompletions, body(R"(,"stream":true)"), {64}, 1));
  ASSERT_EQ(chunks.size(), 1U);
  EXPECT_EQ(dump_at(chunks[0], {"choices", "0", "text"}), R"("ab a")");
  EXPECT_EQ(dump_at(chunks[0], {"choices", "0", "logprobs"}),
            dump_at(folded, {"choices", "0", "logprobs"}));
  EXPECT_EQ(dump_at(chunks[0], {"choices", "0", "finish_reason"}), R"("length")");
}

TEST_F(TokenAnswersTest, ChatEchoesAnAssistantsLastMessage) {
  const auto body = [](const std::string& last, const std::string& extra) {
    return R"({"model":"demo","echo":true,"add_generation_prompt":false,"messages":[)"
           R"({"role":"user","content":"hi"},)" +
           last + "]" + extra + "}";
  };
  const std::string mine = R"({"role":"assistant","content":"One, "})";
  EXPECT_EQ(dump_at(unary(kChat, body(mine, ""), {64}), {"choices", "0", "message", "content"}),
            R"("One, a")");
  EXPECT_EQ(dump_at(unary(kChat,
                          body(R"({"role":"assistant","content":)"
                               R"([{"type":"text","text":"x"},{"type":"text","text":"y"}]})",
                               ""),
                          {64}),
                    {"choices", "0", "message", "content"}),
            R"("x\nya")");
  EXPECT_EQ(dump_at(unary(kChat, body(R"({"role":"user","content":"no"})", ""), {64}),
                    {"choices", "0", "message", "content"}),
            R"("a")");
  const auto chunks = chunks_of(answer(kChat, body(mine, R"(,"stream":true)"), {64}, 1));
  EXPECT_EQ(told(chunks, 0).text, "One, a");
  EXPECT_EQ(dump_at(chunks[0], {"choices", "0", "delta"}),
            R"({"role":"assistant","content":"One, "})");
}

TEST_F(TokenAnswersTest, TokenIdsStandWhereVllmPutsThem) {
  const json::Value chatted = unary(kChat, chat_body(R"("return_token_ids":true,"n":2)"), {64, 65});
  EXPECT_EQ(std::ssize(*at(chatted, {"prompt_token_ids"}).as_array()),
            *at(chatted, {"usage", "prompt_tokens"}).as_int());
  EXPECT_EQ(dump_at(chatted, {"choices", "1", "token_ids"}), "[64,65]");
  const json::Value completed =
      unary(kCompletions, completion_body(R"("return_token_ids":true)", "[[7,8],[9]]"), {64, 65});
  EXPECT_TRUE(at(completed, {"prompt_token_ids"}).is_null());
  EXPECT_EQ(dump_at(completed, {"choices", "0", "prompt_token_ids"}), "[7,8]");
  EXPECT_EQ(dump_at(completed, {"choices", "1", "prompt_token_ids"}), "[9]");
  const auto chunks = chunks_of(
      answer(kChat, chat_body(R"("return_token_ids":true,"stream":true)"), {265, 310}, 1));
  ASSERT_EQ(chunks.size(), 3U);
  EXPECT_TRUE(at(chunks[0], {"prompt_token_ids"}).as_array());
  EXPECT_TRUE(at(chunks[1], {"prompt_token_ids"}).is_null());
  EXPECT_EQ(dump_at(chunks[1], {"choices", "0", "token_ids"}), "[265,310]");
  EXPECT_EQ(dump_at(chunks[2], {"choices", "0", "token_ids"}), "[]");
}

TEST_F(TokenAnswersTest, ExtraFieldsRideInNvext) {
  const std::string fields =
      R"("stop_token_ids":[65],"nvext":{"extra_fields":["completion_token_ids","stop_reason"]})";
  const json::Value folded = unary(kChat, chat_body(fields), {64, 51, 65});
  EXPECT_EQ(dump_at(folded, {"nvext"}), R"({"completion_token_ids":[64,51,65],"stop_reason":65})");
  const auto chunks =
      chunks_of(answer(kChat, chat_body(fields + R"(,"stream":true)"), {64, 265, 310, 65}, 1));
  ASSERT_EQ(chunks.size(), 4U);
  EXPECT_TRUE(at(chunks[0], {"nvext"}).is_null());
  EXPECT_EQ(dump_at(chunks[1], {"nvext"}), R"({"completion_token_ids":[64]})");
  EXPECT_EQ(dump_at(chunks[2], {"nvext"}), R"({"completion_token_ids":[265,310]})");
  EXPECT_EQ(dump_at(chunks[3], {"nvext"}), R"({"completion_token_ids":[65],"stop_reason":65})");
  EXPECT_EQ(
      dump_at(unary(kChat, chat_body(R"("nvext":{"extra_fields":["timing"]})"), {64}), {"nvext"}),
      "null");
}

TEST_F(TokenAnswersTest, MissingValuesAreCountedAndNeverShiftTheArrays) {
  FakeExchange& exchange = post(kCompletions, completion_body(R"("logprobs":1)"));
  auto logprobs = logprobs_of({64, 65, 51});
  logprobs[1] = {.logprob = engine::kLowestLogprob, .rank = 0, .candidates = {}, .missing = true};
  engine::Finish finish;
  const Ids ids{64, 65, 51};
  in_turn([&] { engine_.streams[0].sink->on_tokens({ids, logprobs, &finish}); });
  const auto folded = json::parse(exchange.body);
  ASSERT_TRUE(folded) << exchange.body;
  EXPECT_EQ(dump_at(*folded, {"choices", "0", "logprobs"}),
            R"({"tokens":["a","b","T"],"token_logprobs":[-0.5,-9999.0,-3.5],)"
            R"("top_logprobs":[{"a":-0.5,"b":-1.5},{},{"T":-3.5,"U":-4.5}],)"
            R"("text_offset":[0,1,2]})");
  EXPECT_THAT(registry_.render(),
              HasSubstr("fairlead_frontend_logprobs_missing_total{model=\"demo\"} 1\n"));
}

TEST_F(TokenAnswersTest, AnEngineThatLeavesArraysOutFailsTheRequest) {
  const Ids ids{64, 65};
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    FakeExchange& exchange = post(kChat, chat_body(R"("logprobs":true)"));
    const auto logprobs = logprobs_of(Ids(count, 64));
    in_turn([&] { engine_.streams.back().sink->on_tokens({ids, logprobs, nullptr}); });
    EXPECT_TRUE(exchange.finished());
    EXPECT_EQ(exchange.status, 502) << count;
    EXPECT_THAT(exchange.body, HasSubstr("engine_protocol"));
  }
  FakeExchange& unasked = post(kCompletions, completion_body(R"("prompt_logprobs":1)"));
  in_turn([&] { engine_.streams.back().sink->on_tokens({ids, {}, nullptr}); });
  EXPECT_EQ(unasked.status, 502);
  FakeExchange& wrong = post(kCompletions, completion_body(R"("prompt_logprobs":1)", "[64,65]"));
  const auto one = logprobs_of({64});
  in_turn([&] { engine_.streams.back().sink->on_prompt({.prompt_tokens = 2, .logprobs = one}); });
  EXPECT_EQ(wrong.status, 502);
}

TEST_F(TokenAnswersTest, DefaultsOfTheServerApplyWhereTheRequestSaysNothing) {
  auto assets = std::make_shared<chat::ModelAssets>(*demo_assets());
  assets->defaults.logprobs = 1;
  assets->defaults.prompt_logprobs = 0;
  service_.set_assets({}, assets);
  json::Value said = unary(kChat, chat_body(""), {64});
  EXPECT_EQ(
      at(said, {"choices", "0", "logprobs", "content", "0", "top_logprobs"}).as_array()->size(),
      1U);
  EXPECT_TRUE(at(said, {"prompt_logprobs"}).as_array());
  said = unary(kChat, chat_body(R"("logprobs":false)"), {64});
  EXPECT_TRUE(at(said, {"choices", "0", "logprobs"}).is_null());
  said = unary(kCompletions, completion_body(""), {64});
  EXPECT_EQ(dump_at(said, {"choices", "0", "logprobs", "top_logprobs"}),
            R"([{"a":-0.5,"b":-1.5}])");
  said = unary(kCompletions, completion_body(R"("logprobs":0)"), {64});
  EXPECT_EQ(dump_at(said, {"choices", "0", "logprobs", "top_logprobs"}), R"([{"a":-0.5}])");
  answer(kCompletions, completion_body(R"("stream":true)"), {64}, 1);
  EXPECT_FALSE(engine_.streams.back().request.output.prompt_logprobs);
}

}  // namespace
}  // namespace fairlead::api
