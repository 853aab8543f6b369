#include "hub/environment.hpp"

#include <gtest/gtest.h>

#include <map>

#include "hub/scratch_folder.hpp"

namespace fairlead::hub {
namespace {

Environment read(const std::map<std::string, std::string>& variables) {
  return read_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

TEST(HubEnvironment, TheCacheIsWhereHuggingFaceHasIt) {
  EXPECT_EQ(read({{"HOME", "/h"}}).cache, "/h/.cache/huggingface/hub");
  EXPECT_EQ(read({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}).cache, "/x/huggingface/hub");
  EXPECT_EQ(read({{"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "/f"}}).cache, "/f/hub");
  EXPECT_EQ(read({{"HOME", "/h"}, {"HF_HOME", "~/f"}}).cache, "/h/f/hub");
  EXPECT_EQ(read({{"HF_HOME", "/f"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}).cache, "/old");
  EXPECT_EQ(read({{"HF_HUB_CACHE", "/c"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}).cache, "/c");
  EXPECT_EQ(read({{"HF_HUB_CACHE", ""}, {"HF_HOME", "/f"}}).cache, "/f/hub");
}

TEST(HubEnvironment, TheEndpointHasNoSlashAtItsEnd) {
  EXPECT_EQ(read({}).endpoint, "https://huggingface.co");
  EXPECT_EQ(read({{"HF_ENDPOINT", "https://mirror/hf//"}}).endpoint, "https://mirror/hf");
}

TEST(HubEnvironment, OfflineIsSaidInManyWays) {
  for (const char* yes : {"1", "true", "True", "ON", "yes"}) {
    EXPECT_TRUE(read({{"HF_HUB_OFFLINE", yes}}).offline) << yes;
    EXPECT_TRUE(read({{"TRANSFORMERS_OFFLINE", yes}}).offline) << yes;
  }
  for (const char* no : {"", "0", "false", "off", "maybe"}) {
    EXPECT_FALSE(read({{"HF_HUB_OFFLINE", no}}).offline) << no;
  }
}

TEST(HubEnvironment, TheTokenIsAVariableOrAFile) {
  ScratchFolder home;
  home.write("token", " hf_file\n").write("other", "hf_other");
  const std::string folder = home.path().string();
  EXPECT_EQ(read({{"HF_HOME", folder}}).token, "hf_file");
  EXPECT_EQ(read({{"HF_HOME", folder}, {"HF_TOKEN_PATH", folder + "/other"}}).token, "hf_other");
  EXPECT_EQ(read({{"HF_HOME", folder}, {"HUGGING_FACE_HUB_TOKEN", "hf_old"}}).token, "hf_old");
  EXPECT_EQ(
      read({{"HF_HOME", folder}, {"HF_TOKEN", "hf_new\n"}, {"HUGGING_FACE_HUB_TOKEN", "hf_old"}})
          .token,
      "hf_new");
  EXPECT_EQ(read({{"HF_TOKEN", "hf"}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}}).token, "");
  EXPECT_EQ(read({{"HF_HOME", folder + "/nowhere"}}).token, "");
}

TEST(HubEnvironment, SilenceHasBounds) {
  EXPECT_EQ(read({}).silence, std::chrono::seconds(30));
  EXPECT_EQ(read({{"HF_HUB_DOWNLOAD_TIMEOUT", "5"}}).silence, std::chrono::seconds(5));
  EXPECT_EQ(read({{"HF_HUB_DOWNLOAD_TIMEOUT", "99999"}}).silence, std::chrono::seconds(3600));
  for (const char* wrong : {"0", "-1", "x", "5s", ""}) {
    EXPECT_EQ(read({{"HF_HUB_DOWNLOAD_TIMEOUT", wrong}}).silence, std::chrono::seconds(30))
        << wrong;
  }
}

TEST(HubEnvironment, AuthoritiesAreThoseOfOtherTools) {
  EXPECT_EQ(read({{"SSL_CERT_FILE", "/a"}, {"CURL_CA_BUNDLE", "/b"}}).ca_file, "/a");
  EXPECT_EQ(read({{"REQUESTS_CA_BUNDLE", "/r"}, {"CURL_CA_BUNDLE", "/b"}}).ca_file, "/r");
  EXPECT_EQ(read({{"CURL_CA_BUNDLE", "/b"}}).ca_file, "/b");
  EXPECT_EQ(read({{"SSL_CERT_DIR", "/d"}}).ca_folder, "/d");
  EXPECT_TRUE(read({}).ca_file.empty());
}

}  // namespace
}  // namespace fairlead::hub
