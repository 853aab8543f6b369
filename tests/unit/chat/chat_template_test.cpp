#include "chat/chat_template.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "chat/line_command.hpp"
#include "chat/model_folder.hpp"

namespace fairlead::chat {
namespace {

std::shared_ptr<const ChatTemplate> make(std::string source, ChatTemplate::Sources special = {}) {
  return ChatTemplate::make({{"default", std::move(source)}}, std::move(special)).value();
}

RenderRequest request(std::string_view messages) {
  RenderRequest out;
  out.messages = json::parse(messages).value();
  return out;
}

std::string text(const Result<std::string>& result) {
  return result ? *result : "error: " + result.error().message;
}

constexpr std::string_view kHi = R"([{"role": "user", "content": "hi"}])";

TEST(ChatTemplate, PrefersTheToolTemplateWhenThereAreTools) {
  const auto both = ChatTemplate::make({{"default", "D"}, {"tool_use", "T"}}, {}).value();
  RenderRequest what = request(kHi);
  EXPECT_EQ(text(both->render(what)), "D");
  what.tools = json::parse(R"([{"type": "function", "function": {"name": "f"}}])").value();
  EXPECT_EQ(text(both->render(what)), "T");
  EXPECT_EQ(text(make("D")->render(what)), "D");
  what.template_override = "tool_use";
  what.tools = {};
  EXPECT_EQ(text(both->render(what)), "T");
  what.template_override = "own {{ messages | length }}";
  EXPECT_EQ(text(both->render(what)), "own 1");
  what.template_override = "{% if";
  EXPECT_EQ(both->render(what).error().code, ErrorCode::InvalidRequest);
}

TEST(ChatTemplate, VariablesOverrideEachOtherInOrder) {
  const auto model =
      make("{{ bos_token }}{{ add_generation_prompt }}{{ tools }}{{ x }}", {{"bos_token", "<s>"}});
  RenderRequest what = request(kHi);
  EXPECT_EQ(text(model->render(what)), "<s>TrueNone");
  what.special_tokens.set("bos_token", json::Value("<t>"));
  EXPECT_EQ(text(model->render(what)), "<t>TrueNone");
  what.kwargs.set("bos_token", json::Value("<k>"));
  what.kwargs.set("add_generation_prompt", json::Value(false));
  what.kwargs.set("x", json::Value(1.0));
  EXPECT_EQ(text(model->render(what)), "<k>FalseNone1.0");
}

TEST(ChatTemplate, FindsTheContentShapeByReadingOrProbing) {
  EXPECT_EQ(make("{% for m in messages %}{{ m.content }}{% endfor %}")->content_format(),
            ContentFormat::Text);
  EXPECT_EQ(
      make("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}")
          ->content_format(),
      ContentFormat::Parts);
  EXPECT_EQ(make("{{ messages[0].content[0].text }}")->content_format(), ContentFormat::Parts);
  EXPECT_EQ(make("{{ raise_exception('never') }}")->content_format(), ContentFormat::Text);
}

TEST(ChatTemplate, RefusesWhatIsNoConversation) {
  const auto model = make("{{ messages | length }}");
  for (const char* messages :
       {"null", "5", "[]", "[1]", R"([{"content": {}}])", R"([{"content": [{"type": "text"}]}])"}) {
    const auto out = model->render(request(messages));
    ASSERT_FALSE(out) << messages;
    EXPECT_EQ(out.error().code, ErrorCode::InvalidRequest) << messages;
    EXPECT_EQ(out.error().param, "messages") << messages;
  }
  const auto media = model->render(request(R"([{"content": [{"type": "input_audio"}]}])"));
  EXPECT_EQ(media.error().code, ErrorCode::UnsupportedField);
}

TEST(ChatTemplate, OwnErrorsOfTheTemplateReachTheCaller) {
  const auto out = make("{{ raise_exception('only users may speak') }}")->render(request(kHi));
  EXPECT_EQ(text(out), "error: only users may speak");
  EXPECT_EQ(out.error().code, ErrorCode::InvalidRequest);
}

TEST(ChatTemplate, KeepsKeysAndNumbersAsTheyCame) {
  const auto model = make("{{ messages[0] | tojson }}");
  const auto what = request(
      R"([{"role": "user", "z": 1.0, "content": "x", "a": [1e22, 100000000000000000000]}])");
  EXPECT_EQ(text(model->render(what)),
            R"({"role": "user", "z": 1.0, "content": "x", "a": [1e+22, 100000000000000000000]})");
}

TEST(ChatTemplate, TellsAPromptThatOpensItsThinking) {
  EXPECT_TRUE(ends_inside_thinking("<assistant>\n<think>\n"));
  EXPECT_FALSE(ends_inside_thinking("<think>\n\n</think>\n\n"));
  EXPECT_FALSE(ends_inside_thinking(""));
}

std::string answer(const std::string& lines, const std::string& model = {}) {
  std::istringstream in(lines);
  std::ostringstream out;
  EXPECT_EQ(run_render(in, out, {model}), 0);
  return out.str();
}

TEST(RenderCommand, AnswersLineByLine) {
  std::istringstream lines(
      answer("{\"template\": \"{{ x }}\", \"context\": {\"x\": 1}}\n\n[]\n{\"template\": \"{{ "
             "'\\\\n' }}\"}"));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line, "{\"prompt\":\"1\"}");
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_TRUE(line.starts_with("{\"error\":\"invalid JSON")) << line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line, "{\"error\":\"the line is not an object\"}");
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line, "{\"prompt\":\"\\n\"}");
  EXPECT_FALSE(std::getline(lines, line));
}

TEST(RenderCommand, UsesTheModelsTemplate) {
  ModelFolder folder;
  folder
      .write("chat_template.jinja",
             "{{ eos_token }}{{ messages[0].content }}{{ add_generation_prompt }}\n")
      .write("tokenizer_config.json", R"({"eos_token": "<end>", "chat_template": "unused"})");
  EXPECT_EQ(answer("{\"messages\": [{\"content\": \"x\"}], \"add_generation_prompt\": false}\n",
                   folder.path().string()),
            "{\"prompt\":\"<end>xFalse\"}\n");
}

TEST(RenderCommand, FailsWhenTheModelDoesNotLoad) {
  std::istringstream in;
  std::ostringstream out;
  EXPECT_EQ(run_render(in, out, {"/nowhere/at/all"}), 1);
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace fairlead::chat
