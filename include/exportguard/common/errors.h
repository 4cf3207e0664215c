#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace exportguard {

/// Base of every exception that the library throws on purpose. Python sees it as
/// `exportguard.ExportGuardError`, its subclasses under their own names.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An option or argument of a public function is out of its bounds. The text names the argument,
/// the bound, the value and the remedy.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// A number of a size that 64 bits do not hold, which the arithmetic of tensors would wrap.
class Overflow : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

/// A graph is malformed, or an edit would make it so.
class GraphError : public Error {
 public:
  using Error::Error;
};

/// Text that is not in the format a parser reads. Lines and columns count from 1.
class ParseError : public Error {
 public:
  ParseError(const std::string& what, std::size_t line, std::size_t column);
  std::size_t line() const noexcept { return line_; }
  std::size_t column() const noexcept { return column_; }

 private:
  std::size_t line_;
  std::size_t column_;
};

/// An exported program holds something that cannot be represented.
class ImportError : public Error {
 public:
  using Error::Error;
};

/// One or more operators could not be lowered; the text lists all of them.
class LoweringError : public Error {
 public:
  using Error::Error;
};

/// A file cannot be written or read, or its content is not what it should be.
class FileError : public Error {
 public:
  using Error::Error;
};

/// A patch cannot be installed, or the guard is used in a way it does not allow.
class GuardError : public Error {
 public:
  using Error::Error;
};

}  // namespace exportguard
