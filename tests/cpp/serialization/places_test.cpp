// Where a save writes: what it replaces, what it follows, and what it leaves alone.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "exportguard/common/errors.h"
#include "serialization/files.h"
#include "serialization/output_file.h"

namespace exportguard::serialization {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

ir::Model doubled(std::int64_t rows = 8) {
  ir::Model model = ir::parse_model("opset 22\ngraph(%x: f32[64]):\n  %y: f32[64] = Relu(%x)\n  return (%y)");
  const std::int64_t shape[] = {rows, 64};
  ir::Value& weight = model.graph->add_initializer("w", ir::Tensor::filled(1, DType::kFloat32, shape));
  ir::Node& sum =
      model.graph->append({.op = "Add", .inputs = {&model.graph->output(0), &weight}, .outputs = {weight.type()}});
  model.graph->add_output(&sum.output(), "sum");
  return model;
}

class PlaceTest : public FolderTest {
 protected:
  fs::path path() const { return folder_ / "m.onnx"; }
  void save_external() const { save(doubled(), path(), {.external_data = ExternalData::kAlways}); }
  void save_inline() const { save(doubled(), path(), {.external_data = ExternalData::kNever}); }
};

auto fails_with(const std::string& reason) { return ThrowsMessage<FileError>(HasSubstr(reason)); }

TEST_F(PlaceTest, WhatKilledSavesLeftIsRemoved) {
  write_file(folder_ / ".exportguard-17-0.tmp", "half a model");
  write_file(folder_ / ".exportguard-00112233445566aa.tmp", "half a model");
  save_inline();
  EXPECT_THAT(listing(), ElementsAre("m.onnx"));
}

TEST_F(PlaceTest, WhatALivingSaveWritesStays) {
  const fs::path other = folder_ / ".exportguard-00112233445566aa.tmp";
  write_file(other, "half a model");
  const int descriptor = ::open(other.c_str(), O_RDONLY);
  ASSERT_EQ(::flock(descriptor, LOCK_EX), 0);
  save_inline();
  EXPECT_THAT(listing(), ElementsAre(".exportguard-00112233445566aa.tmp", "m.onnx"));
  ::close(descriptor);
  save_inline();
  EXPECT_THAT(listing(), ElementsAre("m.onnx"));
}

TEST_F(PlaceTest, WhatALivingSaveHasClosedStaysUntilItHasItsName) {
  OutputFile file(folder_ / "m.onnx");
  file.write("whole", 5, 0);
  file.close();
  const OutputFile other(folder_ / "other.onnx");  // looks for what dead saves left
  publish({&file, 1});
  EXPECT_EQ(read_file(folder_ / "m.onnx"), "whole");
}

TEST_F(PlaceTest, OfSavesToTheSameNamesTheFilesOfOneStay) {
  constexpr int kFiles = 40;
  const auto path = [&](int number) { return folder_ / std::to_string(number); };
  const auto save = [&](char content) {
    std::vector<OutputFile> files;
    for (int number = 0; number < kFiles; ++number) files.emplace_back(path(number)).write(&content, 1, 0);
    publish(files);
  };

  for (int round = 0; round < 8; ++round) {
    {
      std::vector<std::jthread> threads;
      for (const char content : {'a', 'b', 'c', 'd'}) threads.emplace_back(save, content);
    }
    std::set<std::string> contents;
    for (int number = 0; number < kFiles; ++number) contents.insert(read_file(path(number)));
    EXPECT_THAT(contents, testing::SizeIs(1));
  }
}

TEST_F(PlaceTest, APipeIsNotReplaced) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_THAT([&] { save_inline(); }, fails_with("m.onnx': it is a pipe, and only files are replaced"));
  EXPECT_TRUE(fs::is_fifo(path()));
}

TEST_F(PlaceTest, ADeviceBehindALinkIsNotReplaced) {
  fs::create_symlink("/dev/null", path());
  EXPECT_THAT([&] { save_inline(); }, fails_with("/dev/null': it is a device"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(PlaceTest, ALinkIsFollowed) {
  fs::create_directory(folder_ / "blobs");
  write_file(folder_ / "blobs" / "one", "old");
  fs::create_symlink("blobs/one", path());
  save_inline();
  EXPECT_TRUE(fs::is_symlink(path()));
  EXPECT_THAT(read_file(folder_ / "blobs" / "one"), HasSubstr("exportguard"));
}

TEST_F(PlaceTest, ALinkToAFileThatIsNotThereYetIsFollowed) {
  fs::create_directory(folder_ / "blobs");
  fs::create_symlink("blobs/one", path());
  save_inline();
  EXPECT_TRUE(fs::is_symlink(path()));
  EXPECT_TRUE(fs::is_regular_file(folder_ / "blobs" / "one"));
}

TEST_F(PlaceTest, LinksInACircleAreNamed) {
  fs::create_symlink("m.onnx", folder_ / "a");
  fs::create_symlink("a", path());
  EXPECT_THAT([&] { save_inline(); }, fails_with("Too many levels of symbolic links"));
}

TEST_F(PlaceTest, TheModeOfTheFileStays) {
  save_inline();
  ASSERT_EQ(::chmod(path().c_str(), 0640), 0);
  save_inline();
  EXPECT_EQ(fs::status(path()).permissions(), fs::perms(0640));
}

TEST_F(PlaceTest, ALongNameIsFoundOutBeforeAnythingIsWritten) {
  const fs::path name = folder_ / (std::string(260, 'a') + ".onnx");
  EXPECT_THAT([&] { OutputFile file(name); }, fails_with("File name too long; choose a shorter name"));
  // The name of the data is longer than that of the model.
  const fs::path model = folder_ / (std::string(248, 'a') + ".onnx");
  EXPECT_THAT([&] { save(doubled(), model, {.external_data = ExternalData::kAlways}); },
              fails_with("File name too long"));
  EXPECT_THAT(listing(), IsEmpty());
}

TEST_F(PlaceTest, ADataFileOfSomebodyElseIsNeitherReplacedNorRemoved) {
  write_file(folder_ / "m.onnx.data", "measurements");
  save_external();
  EXPECT_THAT(listing(), ElementsAre("m.onnx", "m.onnx.1.data", "m.onnx.data"));
  EXPECT_EQ(load(path()).graph->initializers().size(), 1U);
  save_external();
  EXPECT_THAT(listing(), ElementsAre("m.onnx", "m.onnx.1.data", "m.onnx.data"));
  save_inline();
  EXPECT_THAT(listing(), ElementsAre("m.onnx", "m.onnx.data"));
  EXPECT_EQ(read_file(folder_ / "m.onnx.data"), "measurements");
}

TEST_F(PlaceTest, ALinkWithTheNameOfTheDataIsNotWrittenThrough) {
  write_file(folder_ / "measurements", "many");
  fs::create_symlink("measurements", folder_ / "m.onnx.data");
  save_external();
  EXPECT_EQ(read_file(folder_ / "measurements"), "many");
}

TEST_F(PlaceTest, AModelWithoutOutputsIsRefused) {
  const ir::Model model = ir::parse_model("opset 22\ngraph(%x: f32[2]):\n  return ()");
  EXPECT_THAT([&] { save(model, path()); }, ThrowsMessage<GraphError>(HasSubstr("the model has no outputs")));
  EXPECT_THAT([&] { to_bytes(model); }, ThrowsMessage<GraphError>(HasSubstr("the model has no outputs")));
  EXPECT_THAT(listing(), IsEmpty());
}

}  // namespace
}  // namespace exportguard::serialization
