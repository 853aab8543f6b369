#include "hub/cache.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cstdlib>
#include <optional>

#include "hub/file_lock.hpp"
#include "hub/hub.hpp"
#include "hub/part_file.hpp"
#include "hub/scratch_folder.hpp"

namespace fairlead::hub {
namespace {

namespace fs = std::filesystem;

const std::string kCommit = "0123456789abcdef0123456789abcdef01234567";
const std::string kHelloSum = "ce013625030ba8dba906f756967f9e9ca394464a";  // of "hello\n"

ModelCache cache_of(const ScratchFolder& folder, const char* id = "org/name") {
  return {folder.path(), *parse_model_id(id)};
}

TEST(ModelCache, ReferencesLeadToSnapshots) {
  ScratchFolder folder;
  folder.write("models--org--name/snapshots/abc/config.json", "{}")
      .write("models--org--name/snapshots/old/config.json", "{}")
      .write("models--org--name/snapshots/" + kCommit + "/config.json", "{}")
      .write("models--org--name/refs/main", "abc\n")
      .write("models--org--name/refs/refs/pr/1", "old")
      .write("models--org--name/refs/lost", "gone")
      .write("models--org--name/refs/out", "../../..")
      .write("models--org--name/refs/up", "..");
  const fs::path snapshots = folder.path() / "models--org--name/snapshots";
  EXPECT_EQ(cache_of(folder).find_snapshot(), snapshots / "abc");
  EXPECT_EQ(cache_of(folder, "org/name@refs/pr/1").find_snapshot(), snapshots / "old");
  const std::string pinned = "org/name@" + kCommit;
  EXPECT_EQ(cache_of(folder, pinned.c_str()).find_snapshot(), snapshots / kCommit);
  for (const char* id :
       {"org/name@lost", "org/name@out", "org/name@up", "org/name@none", "org/none"}) {
    EXPECT_EQ(cache_of(folder, id).find_snapshot(), std::nullopt) << id;
  }
  EXPECT_TRUE(cache_of(folder, "org/name@none").exists());
  EXPECT_FALSE(cache_of(folder, "org/none").exists());
}

TEST(ModelCache, ASingleSnapshotNeedsNoReference) {
  ScratchFolder folder;
  folder.write("models--plain/snapshots/only/config.json", "{}")
      .write("models--torn/snapshots/a/config.json", "{}")
      .write("models--torn/snapshots/b/config.json", "{}");
  const fs::path only = folder.path() / "models--plain/snapshots/only";
  EXPECT_EQ(cache_of(folder, "plain").guess_snapshot(), only);
  EXPECT_EQ(cache_of(folder, "plain").find_snapshot(), std::nullopt);
  EXPECT_EQ(cache_of(folder, "plain@v1").guess_snapshot(), std::nullopt);
  EXPECT_EQ(cache_of(folder, "torn").guess_snapshot(), std::nullopt);
  // A pipe in the reference's place does not block.
  fs::create_directories(folder.path() / "models--plain/refs");
  ASSERT_EQ(mkfifo((folder.path() / "models--plain/refs/main").c_str(), 0600), 0);
  EXPECT_EQ(cache_of(folder, "plain").guess_snapshot(), only);
  // It may be another revision's.
  folder.write("models--plain/refs/refs/pr/1", "only");
  EXPECT_EQ(cache_of(folder, "plain").guess_snapshot(), std::nullopt);
}

TEST(ModelCache, ASnapshotIsWholeWhenNothingIsMissingThatTheHubHas) {
  ScratchFolder folder;
  const ModelCache cache = cache_of(folder);
  const std::string snapshot = "models--org--name/snapshots/" + kCommit;
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
    folder.write(snapshot + '/' + name, "{}");
    EXPECT_FALSE(cache.is_whole(cache.snapshot(kCommit))) << name;
  }
  ASSERT_TRUE(cache.note_absent(kCommit, "chat_template.jinja"));
  EXPECT_TRUE(
      fs::exists(folder.path() / "models--org--name/.no_exist" / kCommit / "chat_template.jinja"));
  EXPECT_TRUE(cache.is_whole(cache.snapshot(kCommit)));
  // A link to a blob that was removed is no file.
  fs::remove(folder.path() / snapshot / "config.json");
  fs::create_symlink("../../blobs/none", folder.path() / snapshot / "config.json");
  EXPECT_FALSE(cache.is_whole(cache.snapshot(kCommit)));
}

TEST(ModelCache, TheListOfHuggingFaceSaysWhatIsWhole) {
  ScratchFolder folder;
  const ModelCache cache = cache_of(folder);
  const std::string list = "models--org--name/trees/" + kCommit + ".json";
  folder.write("models--org--name/snapshots/" + kCommit + "/tokenizer.json", "{}")
      .write(list, R"({"format_version":1,"files":{"tokenizer.json":{},"model.safetensors":{}}})");
  EXPECT_TRUE(cache.is_whole(cache.snapshot(kCommit)));
  folder.write(list, R"({"format_version":1,"files":{"tokenizer.json":{},"config.json":{}}})");
  EXPECT_FALSE(cache.is_whole(cache.snapshot(kCommit)));
  folder.write(list, R"({"format_version":2,"files":{"tokenizer.json":{}}})");
  EXPECT_FALSE(cache.is_whole(cache.snapshot(kCommit)));
  folder.write(list, "torn");
  EXPECT_FALSE(cache.is_whole(cache.snapshot(kCommit)));
}

TEST(ModelCache, WhatIsWrittenIsLaidOutAsHuggingFaceDoes) {
  ScratchFolder folder;
  const ModelCache cache = cache_of(folder, "org/name@refs/pr/1");
  folder.write("models--org--name/blobs/aa", "text");
  ASSERT_TRUE(cache.link(kCommit, "config.json", "aa"));
  ASSERT_TRUE(cache.link(kCommit, "additional_chat_templates/x.jinja", "aa"));
  ASSERT_TRUE(cache.link(kCommit, "config.json", "aa"));  // again
  const std::string snapshot = "models--org--name/snapshots/" + kCommit;
  EXPECT_EQ(fs::read_symlink(folder.path() / snapshot / "config.json"), "../../blobs/aa");
  EXPECT_EQ(fs::read_symlink(folder.path() / snapshot / "additional_chat_templates/x.jinja"),
            "../../../blobs/aa");
  EXPECT_EQ(folder.read(snapshot + "/config.json"), "text");
  ASSERT_TRUE(cache.set_reference(kCommit));
  EXPECT_EQ(folder.read("models--org--name/refs/refs/pr/1"), kCommit);
  EXPECT_EQ(cache.find_snapshot(), cache.snapshot(kCommit));
  EXPECT_EQ(cache.lock("aa"), folder.path() / ".locks/models--org--name/aa.lock");
  // A commit names itself.
  const std::string pinned = "org/other@" + kCommit;
  ASSERT_TRUE(cache_of(folder, pinned.c_str()).set_reference(kCommit));
  EXPECT_FALSE(fs::exists(folder.path() / "models--org--other"));
}

TEST(ModelCache, FailuresNameTheFile) {
  ScratchFolder folder;
  folder.write("file", "");
  const ModelCache cache(folder.path() / "file", *parse_model_id("org/name"));
  const Result<> linked = cache.link(kCommit, "config.json", "aa");
  ASSERT_FALSE(linked);
  EXPECT_EQ(linked.error().code, ErrorCode::InvalidRequest);
  EXPECT_NE(linked.error().message.find("file/models--org--name"), std::string::npos);
  EXPECT_FALSE(cache.set_reference(kCommit));
  EXPECT_FALSE(cache.note_absent(kCommit, "x"));
}

TEST(PartFile, GoesOnWhereAnEarlierOneEnded) {
  ScratchFolder folder;
  const fs::path blob = folder.path() / "blobs" / kHelloSum;
  folder.write("blobs/" + kHelloSum + ".incomplete", "hel");
  auto part = PartFile::open(blob);
  ASSERT_TRUE(part) << part.error().message;
  EXPECT_EQ(part->size(), 3);
  ASSERT_TRUE(part->append("lo"));
  EXPECT_FALSE(part->matches(kHelloSum));
  ASSERT_TRUE(part->append("\n"));
  EXPECT_TRUE(part->matches(kHelloSum));
  EXPECT_FALSE(part->matches("not a sum"));
  ASSERT_TRUE(part->publish());
  EXPECT_EQ(folder.read("blobs/" + kHelloSum), "hello\n");
  EXPECT_FALSE(fs::exists(blob.string() + ".incomplete"));
}

TEST(PartFile, ForgetsWhatItHas) {
  ScratchFolder folder;
  auto part = PartFile::open(folder.path() / "b");
  ASSERT_TRUE(part);
  ASSERT_TRUE(part->append("wrong"));
  ASSERT_TRUE(part->clear());
  ASSERT_TRUE(part->append("hello\n"));
  EXPECT_TRUE(part->matches(kHelloSum));
}

TEST(PartFile, OnlyARegularFileIsWrittenTo) {
  ScratchFolder folder;
  folder.write("precious", "text");
  fs::create_symlink("precious", folder.path() / "link.incomplete");
  EXPECT_FALSE(PartFile::open(folder.path() / "link"));
  ASSERT_EQ(mkfifo((folder.path() / "pipe.incomplete").c_str(), 0600), 0);
  EXPECT_FALSE(PartFile::open(folder.path() / "pipe"));
  EXPECT_EQ(folder.read("precious"), "text");
}

TEST(FileLock, IsHeldByOneAndWaitedFor) {
  ScratchFolder folder;
  const fs::path file = folder.path() / ".locks/x.lock";
  std::stop_source stop;
  int waits = 0;
  auto first = FileLock::acquire(file, stop.get_token(), [&] { ++waits; });
  ASSERT_TRUE(first && *first);
  EXPECT_EQ(waits, 0);
  // Somebody else waits for it, until it is released.
  const auto release = [&] {
    ++waits;
    first->reset();
  };
  const auto second = FileLock::acquire(file, stop.get_token(), release);
  ASSERT_TRUE(second && *second);
  EXPECT_EQ(waits, 1);
  // Until stopped.
  const auto third = FileLock::acquire(file, stop.get_token(), [&] { stop.request_stop(); });
  ASSERT_TRUE(third);
  EXPECT_FALSE(third->has_value());
}

TEST(FileLock, ALockFileThatIsRemovedAtTheEndIsNotMistakenForTheNextOne) {
  ScratchFolder folder;
  const fs::path file = folder.path() / "x.lock";
  auto first = FileLock::acquire(file, {}, [] {});
  ASSERT_TRUE(first && *first);
  const auto second = FileLock::acquire(file, {}, [&] {
    fs::remove(file);  // as Python's filelock does
    first->reset();
  });
  ASSERT_TRUE(second && *second);
  const Descriptor other(open(file.c_str(), O_RDWR));
  EXPECT_NE(flock(other.get(), LOCK_EX | LOCK_NB), 0);
}

TEST(FileLock, AFolderThatCannotBeMadeIsSaid) {
  ScratchFolder folder;
  folder.write("file", "");
  EXPECT_FALSE(FileLock::acquire(folder.path() / "file/x.lock", {}, [] {}));
}

// Sets an environment variable for one test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) {
      old_ = old;
    }
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (old_) {
      setenv(name_, old_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

std::string error_of(const std::string& path, const LookUp& look_up) {
  const auto found = resolve_model(path, look_up);
  return found ? "found " + found->string() : found.error().message;
}

TEST(ResolveModel, AFolderOrFileWins) {
  ScratchFolder folder;
  folder.write("file", "").write("models--org--name/snapshots/x/config.json", "{}");
  const Variable cache("HF_HUB_CACHE", folder.path().string());
  EXPECT_EQ(resolve_model(folder.path().string()).value(), folder.path());
  EXPECT_EQ(resolve_model((folder.path() / "file").string()).value(), folder.path() / "file");
  EXPECT_FALSE(is_hub_name(folder.path().string()));
  EXPECT_TRUE(is_hub_name("org/name"));
}

TEST(ResolveModel, WithoutDownloadsTheCacheDecides) {
  ScratchFolder folder;
  folder.write("models--org--name/snapshots/x/config.json", "{}")
      .write("models--org--torn/snapshots/a/config.json", "{}")
      .write("models--org--torn/snapshots/b/config.json", "{}");
  const Variable cache("HF_HUB_CACHE", folder.path().string());
  EXPECT_EQ(resolve_model("org/name", {.download = false}).value(),
            folder.path() / "models--org--name/snapshots/x");
  EXPECT_EQ(error_of("org/absent", {.download = false}),
            "no model `org/absent`: neither a folder nor in the Hugging Face cache " +
                folder.path().string());
  EXPECT_NE(error_of("org/torn", {.download = false}).find("refs/main names no snapshot"),
            std::string::npos);
  EXPECT_EQ(error_of("../x", {}), "model folder `../x` does not exist");
  EXPECT_EQ(error_of("", {}), "model folder `` does not exist");
}

TEST(ResolveModel, OfflineTheCacheDecides) {
  ScratchFolder folder;
  folder.write("models--org--name/snapshots/x/config.json", "{}");
  const Variable cache("HF_HUB_CACHE", folder.path().string());
  const Variable offline("HF_HUB_OFFLINE", "1");
  EXPECT_EQ(resolve_model("org/name").value(), folder.path() / "models--org--name/snapshots/x");
  EXPECT_NE(error_of("org/absent", {}).find("HF_HUB_OFFLINE forbids"), std::string::npos);
}

TEST(ResolveModel, AnEnvironmentThatCannotBeUsedIsSaidBeforeAnythingIsSent) {
  ScratchFolder folder;
  const Variable cache("HF_HUB_CACHE", folder.path().string());
  const Variable online("HF_HUB_OFFLINE", "0");
  {
    const Variable endpoint("HF_ENDPOINT", "ftp://x");
    EXPECT_EQ(error_of("org/name", {}), "HF_ENDPOINT: `ftp://x` is no http or https URL");
  }
  const Variable endpoint("HF_ENDPOINT", "http://127.0.0.1:9");
  const Variable token("HF_TOKEN", "a\nX-Evil: b");
  EXPECT_EQ(error_of("org/name", {}), "HF_TOKEN: it has characters that no token has");
}

}  // namespace
}  // namespace fairlead::hub
