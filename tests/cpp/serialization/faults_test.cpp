// What a failed save leaves behind: nothing of its own, and what stood there before.
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include <csignal>
#include <span>

#include "exportguard/common/errors.h"
#include "serialization/files.h"
#include "serialization/output_file.h"

namespace exportguard::serialization {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

constexpr unsigned kNobody = 65534;

ir::Model one_megabyte() {
  ir::Model model = ir::parse_model("opset 22\ngraph(%x: f32[64]):\n  %y: f32[64] = Relu(%x)\n  return (%y)");
  const std::int64_t shape[] = {4096, 64};
  ir::Value& weight = model.graph->add_initializer("w", ir::Tensor::filled(1, DType::kFloat32, shape));
  ir::Node& sum =
      model.graph->append({.op = "Add", .inputs = {&model.graph->output(0), &weight}, .outputs = {weight.type()}});
  model.graph->add_output(&sum.output(), "sum");
  return model;
}

auto fails_with(const std::string& reason) { return ThrowsMessage<FileError>(HasSubstr(reason)); }

class FailedSave : public FolderTest {
 protected:
  fs::path path() const { return folder_ / "m.onnx"; }
  void save_external() const { save(one_megabyte(), path(), {.external_data = ExternalData::kAlways}); }
  void save_inline() const { save(one_megabyte(), path(), {.external_data = ExternalData::kNever}); }

  void write_old_files() const {
    write_file(path(), "old model");
    write_file(folder_ / "m.onnx.data", "old data");
  }

  void expect_old_files() const {
    EXPECT_THAT(listing(), ElementsAre("m.onnx", "m.onnx.data"));
    EXPECT_EQ(read_file(path()), "old model");
    EXPECT_EQ(read_file(folder_ / "m.onnx.data"), "old data");
  }
};

/// Files of this process end after so many bytes; the kernel reports it in the middle of a write, as a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit old_{};
};

TEST_F(FailedSave, APipeIsNoFileAndIsNotWaitedFor) {
  save_external();
  fs::remove(folder_ / "m.onnx.data");
  ASSERT_EQ(::mkfifo((folder_ / "m.onnx.data").c_str(), 0600), 0);
  EXPECT_THAT([&] { load(path()); }, fails_with("m.onnx.data': not a file"));
}

TEST_F(FailedSave, AVersionThatNobodyKnowsIsRefused) {
  for (const std::int64_t version : {-5, 99}) {
    ir::Model model = one_megabyte();
    model.opsets[""] = version;
    const std::string bytes = to_bytes(model);
    EXPECT_THAT([&] { from_bytes(std::as_bytes(std::span(bytes))); }, fails_with(fmt::format("opset {}", version)));
  }
}

TEST_F(FailedSave, ADataFileThatCannotGrowLeavesNothing) {
  const FileSizeLimit limit(500'000);
  EXPECT_THAT([&] { save_external(); }, fails_with("m.onnx.data': File too large"));
  EXPECT_THAT(listing(), IsEmpty());
}

TEST_F(FailedSave, AModelThatCannotGrowLeavesNothing) {
  const FileSizeLimit limit(500'000);
  EXPECT_THAT([&] { save_inline(); }, fails_with("m.onnx': File too large"));
  EXPECT_THAT(listing(), IsEmpty());
}

TEST_F(FailedSave, WhatStoodThereBeforeStays) {
  write_old_files();
  const FileSizeLimit limit(500'000);
  EXPECT_THROW(save_external(), FileError);
  EXPECT_THROW(save_inline(), FileError);
  expect_old_files();
}

/// A file system of half a megabyte at the folder, where mounting is allowed.
class SmallDisk {
 public:
  explicit SmallDisk(const fs::path& folder)
      : folder_(folder), is_mounted_(::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=512k") == 0) {}
  ~SmallDisk() {
    if (is_mounted_) ::umount(folder_.c_str());
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool is_mounted() const { return is_mounted_; }

 private:
  fs::path folder_;
  bool is_mounted_;
};

TEST_F(FailedSave, AFullDiskIsNamedAndLeavesNothing) {
  const SmallDisk disk(folder_);
  if (!disk.is_mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  EXPECT_THAT([&] { save_external(); },
              fails_with("No space left on device; free some space or choose another folder"));
  EXPECT_THAT([&] { save_inline(); }, fails_with("No space left on device"));
  EXPECT_THAT(listing(), IsEmpty());
}

TEST_F(FailedSave, AFolderWithoutWritePermissionIsNamed) {
  ::chmod(folder_.c_str(), 0555);
  const int user = ::setfsuid(kNobody);  // root may write everywhere; without root this changes nothing
  EXPECT_THAT([&] { save_external(); },
              fails_with("m.onnx.data': Permission denied; choose a folder that you may write to"));
  ::setfsuid(static_cast<unsigned>(user));
  EXPECT_THAT(listing(), IsEmpty());
}

TEST_F(FailedSave, AMissingFolderIsNamed) {
  EXPECT_THAT([&] { save(one_megabyte(), folder_ / "no" / "m.onnx"); },
              fails_with("no/m.onnx': No such file or directory; create the folder first"));
}

TEST_F(FailedSave, AFolderThatIsAFileIsNamed) {
  write_file(folder_ / "file", "");
  EXPECT_THAT([&] { save(one_megabyte(), folder_ / "file" / "m.onnx"); }, fails_with("file/m.onnx': Not a directory"));
}

TEST_F(FailedSave, APathThatIsAFolderIsNamed) {
  fs::create_directory(path());
  EXPECT_THAT([&] { save_inline(); }, fails_with("m.onnx': Is a directory"));
  EXPECT_THAT([&] { save(one_megabyte(), folder_ / ""); }, fails_with("no file name"));
  EXPECT_THAT(listing(), ElementsAre("m.onnx"));
}

TEST_F(FailedSave, ADataPathThatIsAFolderLeavesTheOldModel) {
  write_file(path(), "old model");
  fs::create_directory(folder_ / "m.onnx.data");
  EXPECT_THAT([&] { save_external(); }, fails_with("m.onnx.data': Is a directory"));
  EXPECT_EQ(read_file(path()), "old model");
  EXPECT_THAT(listing(), ElementsAre("m.onnx", "m.onnx.data"));
}

TEST_F(FailedSave, ATorchLevelNodeLeavesTheOldFiles) {
  write_old_files();
  const ir::Model model =
      ir::parse_model("opset 22\ngraph(%x: f32[2]):\n  %y: f32[2] = aten.relu.default(%x)\n  return (%y)");
  EXPECT_THROW(save(model, path()), GraphError);
  expect_old_files();
}

TEST_F(FailedSave, AFileThatCannotGetItsNamePutsTheOthersBack) {
  write_file(folder_ / "data", "old data");
  std::vector<OutputFile> files;
  files.reserve(2);
  files.emplace_back(folder_ / "data");
  files.emplace_back(folder_ / "model");
  files[0].write("new", 3, 0);
  fs::create_directory(folder_ / "model");  // after the check that it is none
  EXPECT_THAT([&] { publish(files); }, fails_with("model': Is a directory"));
  files.clear();
  EXPECT_EQ(read_file(folder_ / "data"), "old data");
  EXPECT_THAT(listing(), ElementsAre("data", "model"));
}

}  // namespace
}  // namespace exportguard::serialization
