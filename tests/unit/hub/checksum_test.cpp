#include "hub/checksum.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/descriptor.hpp"
#include "hub/client.hpp"
#include "hub/scratch_folder.hpp"

namespace fairlead::hub {
namespace {

const std::string kSha1(40, '1');
const std::string kSha256(64, '2');

TEST(Checksum, EtagsLoseTheirQuotes) {
  EXPECT_EQ(plain_etag("\"abc\""), "abc");
  EXPECT_EQ(plain_etag("W/\"abc\""), "abc");
  EXPECT_EQ(plain_etag("abc"), "abc");
  EXPECT_EQ(plain_etag("\""), "\"");
  EXPECT_EQ(plain_etag(""), "");
}

TEST(Checksum, OnlyGitsAndLfsAreKnown) {
  EXPECT_EQ(checksum_kind(kSha1), ChecksumKind::GitBlob);
  EXPECT_EQ(checksum_kind(kSha256), ChecksumKind::Sha256);
  for (const std::string& etag :
       {std::string(), std::string(32, 'a'), std::string(40, 'g'), std::string(40, 'A'),
        std::string(39, 'a') + "/", "../../" + std::string(34, 'a'), kSha256 + "0"}) {
    EXPECT_EQ(checksum_kind(etag), std::nullopt) << etag;
  }
}

TEST(Checksum, FilesHaveTheSumsOfGitAndOfLfs) {
  ScratchFolder folder;
  folder.write("hello", "hello\n").write("empty", "");
  const Descriptor hello(open((folder.path() / "hello").c_str(), O_RDONLY));
  const Descriptor empty(open((folder.path() / "empty").c_str(), O_RDONLY));
  // `git hash-object`, `sha256sum`.
  EXPECT_EQ(checksum_of(hello.get(), ChecksumKind::GitBlob),
            "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(checksum_of(hello.get(), ChecksumKind::Sha256),
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
  EXPECT_EQ(checksum_of(empty.get(), ChecksumKind::GitBlob),
            "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_EQ(checksum_of(-1, ChecksumKind::Sha256), std::nullopt);
}

TEST(RemoteFile, TheLinkedHeadersWin) {
  const auto file = read_remote_file("f", {.status = 302,
                                           .headers = {{"etag", "\"pointer\""},
                                                       {"content-length", "1000"},
                                                       {"x-linked-etag", '"' + kSha256 + '"'},
                                                       {"x-linked-size", "17"}}});
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->etag, kSha256);
  EXPECT_EQ(file->size, 17);
}

TEST(RemoteFile, ALengthCountsOnlyOfTheFileItself) {
  const std::vector<std::pair<std::string, std::string>> headers{{"etag", "W/\"" + kSha1 + '"'},
                                                                 {"content-length", "12"}};
  EXPECT_EQ(read_remote_file("f", {.status = 200, .headers = headers})->size, 12);
  EXPECT_EQ(read_remote_file("f", {.status = 302, .headers = headers})->size, std::nullopt);
}

TEST(RemoteFile, WithoutChecksumOrTooLargeItIsRefused) {
  const auto none = read_remote_file("f", {.status = 200, .headers = {{"content-length", "12"}}});
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("no checksum"), std::string::npos);
  EXPECT_FALSE(read_remote_file("f", {.status = 200, .headers = {{"etag", "\"../../x\""}}}));
  const auto large = read_remote_file(
      "f", {.status = 200, .headers = {{"etag", kSha1}, {"content-length", "268435457"}}});
  ASSERT_FALSE(large);
  EXPECT_NE(large.error().message.find("which no such file has"), std::string::npos);
  EXPECT_TRUE(read_remote_file(
      "f", {.status = 200, .headers = {{"etag", kSha1}, {"content-length", "268435456"}}}));
}

}  // namespace
}  // namespace fairlead::hub
