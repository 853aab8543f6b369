#include "cli/demo_model.hpp"

#include <gtest/gtest.h>

#include "chat/chat_template.hpp"
#include "cli/command.hpp"

namespace fairlead::cli {
namespace {

TEST(DemoModel, TheEmbeddedFilesAreThoseInShare) {
  const auto file = [](const std::string& name) {
    return read_file(FAIRLEAD_SOURCE_DIR "/share/demo/" + name).value_or("missing");
  };
  EXPECT_EQ(demo_tokenizer_json(), file("tokenizer.json"));
  EXPECT_EQ(demo_tokenizer_config_json(), file("tokenizer_config.json"));
  EXPECT_EQ(demo_config_json(), file("config.json"));
  EXPECT_EQ(demo_chat_template(), file("chat_template.jinja"));
}

TEST(DemoModel, IsWhatItsFolderLoadsAs) {
  const auto embedded = load_demo_model();
  ASSERT_TRUE(embedded.has_value()) << embedded.error().message;
  const auto loaded = chat::load_model_assets({.path = FAIRLEAD_SOURCE_DIR "/share/demo"});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_EQ((*embedded)->eos_token_ids, loaded->eos_token_ids);
  EXPECT_EQ((*embedded)->context_length, loaded->context_length);
  EXPECT_EQ((*embedded)->vocab_size, loaded->vocab_size);

  chat::RenderRequest request;
  request.messages = json::parse(R"([{"role":"developer","content":"Be brief."},
      {"role":"user","content":[{"type":"text","text":"Grüße, 世界 🎉!"}]}])")
                         .value();
  const auto prompt = (*embedded)->chat_template->render(request);
  ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
  EXPECT_EQ(*prompt, "<|system|>Be brief.\n<|user|>Grüße, 世界 🎉!<|assistant|>");
  EXPECT_EQ(loaded->chat_template->render(request).value_or(""), *prompt);

  std::vector<tokenizer::TokenId> ids;
  ASSERT_TRUE((*embedded)->tokenizer->encode(*prompt, false, ids).has_value());
  EXPECT_EQ((*embedded)->tokenizer->decode(ids, false), *prompt);
  EXPECT_EQ((*embedded)->tokenizer->decode(ids, true), "Be brief.\nGrüße, 世界 🎉!");
  for (const auto id : ids) {
    EXPECT_LT(id, (*embedded)->vocab_size);
  }
}

}  // namespace
}  // namespace fairlead::cli
