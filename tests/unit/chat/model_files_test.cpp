#include "chat/model_files.hpp"

#include <gtest/gtest.h>

#include "chat/chat_template.hpp"
#include "chat/model_folder.hpp"
#include "tokenizer/rank_testing.hpp"

namespace fairlead::chat {
namespace {

using Ids = std::vector<std::uint32_t>;

std::string error_of(const ModelAssetsOptions& options) {
  const auto assets = load_model_assets(options);
  return assets ? "loaded" : assets.error().message;
}

TEST(ModelFiles, EndsOfGenerationAreTheUnionOfAllSources) {
  ModelFolder folder;
  folder.write_tokenizer()
      .write("tokenizer_config.json",
             R"({"eos_token": "<end>", "chat_template": "{{ eos_token }}"})")
      .write("config.json",
             R"({"eos_token_id": 3, "vocab_size": 9, "max_position_embeddings": 40960})")
      .write("generation_config.json", R"({"eos_token_id": [1, 3]})");
  const auto assets = load_model_assets({folder.path().string()});
  ASSERT_TRUE(assets) << assets.error().message;
  EXPECT_EQ(assets->eos_token_ids, (Ids{0, 1, 3}));
  EXPECT_EQ(assets->context_length, 40960u);
  EXPECT_EQ(assets->vocab_size, 9u);
  ASSERT_NE(assets->chat_template, nullptr);
  RenderRequest request;
  request.messages = json::parse(R"([{"role": "user", "content": "x"}])").value();
  EXPECT_EQ(assets->chat_template->render(request), "<end>");
}

TEST(ModelFiles, TheVocabularyIsTheModelsAndElseTheTokenizers) {
  ModelFolder folder;
  folder.write_tokenizer().write("config.json", "{}");
  const auto unknown = load_model_assets({folder.path().string()});
  ASSERT_TRUE(unknown) << unknown.error().message;
  EXPECT_EQ(unknown->vocab_size, unknown->tokenizer->vocab_size());
  folder.write("config.json", R"({"vocab_size": 1})");
  const auto fewer = load_model_assets({folder.path().string()});
  ASSERT_TRUE(fewer) << fewer.error().message;
  EXPECT_EQ(fewer->vocab_size, 1U);
  EXPECT_GT(fewer->tokenizer->vocab_size(), 1U);
}

TEST(ModelFiles, MultimodalModelsKeepTheTextValuesInside) {
  ModelFolder folder;
  folder.write_tokenizer().write(
      "config.json", R"({"text_config": {"max_position_embeddings": 7, "vocab_size": 500}})");
  const auto assets = load_model_assets({folder.path().string()});
  ASSERT_TRUE(assets) << assets.error().message;
  EXPECT_EQ(assets->context_length, 7u);
  EXPECT_EQ(assets->vocab_size, 500u);
  EXPECT_EQ(assets->chat_template, nullptr);
  EXPECT_TRUE(assets->eos_token_ids.empty());
}

TEST(ModelFiles, SamplingDefaultsComeFromTheGenerationConfig) {
  ModelFolder folder;
  folder.write_tokenizer()
      .write("config.json", R"({"temperature": 0.1})")
      .write(
          "generation_config.json",
          R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.0, "repetition_penalty": 1.05,
                 "max_new_tokens": 2048, "extra_args": {"a": [1]}, "do_sample": true, "eos_token_id": 2})")
      .write("other/generation_config.json", R"({"temperature": 0.2, "eos_token_id": 3})");
  const auto own = load_model_assets({folder.path().string()});
  ASSERT_TRUE(own);
  EXPECT_EQ(own->defaults.temperature, 0.6);
  EXPECT_EQ(own->defaults.top_k, 20);
  EXPECT_EQ(own->defaults.top_p, 0.95);
  EXPECT_EQ(own->defaults.min_p, 0.0);
  EXPECT_EQ(own->defaults.repetition_penalty, 1.05);
  EXPECT_EQ(own->defaults.max_new_tokens, 2048u);
  EXPECT_EQ(json::dump(own->defaults.extra_args), R"({"a":[1]})");
  const auto none = load_model_assets({folder.path().string(), "none"});
  ASSERT_TRUE(none);
  EXPECT_EQ(none->defaults.temperature, std::nullopt);
  EXPECT_EQ(none->eos_token_ids, (Ids{2}));
  const auto other =
      load_model_assets({folder.path().string(), (folder.path() / "other").string()});
  ASSERT_TRUE(other);
  EXPECT_EQ(other->defaults.temperature, 0.2);
  EXPECT_EQ(other->defaults.top_k, std::nullopt);
  EXPECT_EQ(other->eos_token_ids, (Ids{2, 3}));
  const auto missing = load_model_assets({folder.path().string(), "/nowhere"});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("/nowhere/generation_config.json"), std::string::npos);
}

TEST(ModelFiles, OldModelsKeepSamplingInTheModelConfig) {
  ModelFolder folder;
  folder.write_tokenizer().write("config.json", R"({"temperature": 0.1, "top_k": null})");
  const auto assets = load_model_assets({folder.path().string()});
  ASSERT_TRUE(assets);
  EXPECT_EQ(assets->defaults.temperature, 0.1);
  EXPECT_EQ(assets->defaults.top_k, std::nullopt);
}

TEST(ModelFiles, AFolderOfMistralNeedsNoConfigurationOfItsTokenizer) {
  ModelFolder folder;
  folder.write("tekken.json", tokenizer::testing::SmallTekken().json())
      .write("chat_template.jinja", "{{ bos_token }}[INST]{{ messages[0].content }}[/INST]");
  const auto assets = load_model_assets({folder.path().string()});
  ASSERT_TRUE(assets) << assets.error().message;
  EXPECT_EQ(assets->eos_token_ids, (Ids{2}));
  RenderRequest request;
  request.messages = json::parse(R"([{"role": "user", "content": "hello"}])").value();
  const auto prompt = assets->chat_template->render(request);
  ASSERT_TRUE(prompt) << prompt.error().message;
  EXPECT_EQ(tokenizer::testing::encode(*assets->tokenizer, *prompt), (Ids{1, 3, 283, 4}));
}

TEST(ModelFiles, ErrorsNameTheFileAndTheReason) {
  ModelFolder folder;
  const std::string path = folder.path().string();
  EXPECT_EQ(error_of({path}).find(path + " has no tokenizer: no tokenizer.json, "), 0u);
  EXPECT_EQ(error_of({path + "/nope"}), "model folder `" + path + "/nope` does not exist");
  folder.write_tokenizer();
  EXPECT_EQ(error_of({path + "/tokenizer.json"}),
            "model path `" + path + "/tokenizer.json` is not a folder");
  folder.write("config.json", "{");
  EXPECT_EQ(error_of({path}).find(path + "/config.json: "), 0u);
  folder.write("config.json", "[]");
  EXPECT_EQ(error_of({path}), path + "/config.json: not a JSON object");
  folder.write("config.json", "{}")
      .write("tokenizer_config.json", R"({"chat_template": "{% if %}"})");
  EXPECT_NE(error_of({path}).find("chat template `default`: Expected an expression"),
            std::string::npos);
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_NE(error_of({path}).find("tokenizer_config.json: `chat_template` must be"),
            std::string::npos);
  folder.write("tokenizer_config.json", "{}").write("chat_template.json", "{}");
  EXPECT_NE(error_of({path}).find("chat_template.json has no `chat_template`"), std::string::npos);
}

TEST(ModelFiles, OnlyFoldersAreTaken) {
  ModelFolder folder;
  folder.write("file", "x");
  EXPECT_NE(error_of({(folder.path() / "file").string()}).find("is not a folder"),
            std::string::npos);
  EXPECT_NE(error_of({"../x"}).find("does not exist"), std::string::npos);
  EXPECT_NE(error_of({""}).find("does not exist"), std::string::npos);
}

}  // namespace
}  // namespace fairlead::chat
