// runtime.json: what was switched off on the machine at hand because it did not work there.
//
//   {"schema_version": 1, "clc": "off", "reason": "why"}
//
// It lies beside launch.json, one folder above the images; `advisor accept` writes it, and deleting it switches
// everything on again. Where there is none, nothing is off. One that cannot be understood is an error, and so is a key
// that is not known: what it was meant to switch off must not run.
#pragma once

#include "driver.h"

#include <cerrno>
#include <cstring>
#include <new>

namespace {

struct RuntimeFile {
  bool clc_off;
  char reason[240];
};

// Reads the one shape of JSON that the file has: an object whose values are texts or whole numbers.
class RuntimeReader {
 public:
  RuntimeReader(const char* begin, const char* end) : at_(begin), end_(end) {}

  // Why the text is not such a file; null where it is.
  const char* read(RuntimeFile* file) {
    bool version = false, clc = false, reason = false;
    if (!take('{')) return "it is not a JSON object";
    for (bool first = true; !take('}'); first = false) {
      char key[32];
      if (!first && !take(',')) return "a comma or the closing brace is missing";
      if (!text(key, sizeof key) || !take(':')) return "a key is missing, or the colon behind it";
      if (std::strcmp(key, "schema_version") == 0) {
        if (version || !take('1') || digit()) return "schema_version is not 1, or given twice";
        version = true;
      } else if (std::strcmp(key, "clc") == 0) {
        char value[8];
        if (clc || !text(value, sizeof value)) return "clc is no text, or given twice";
        file->clc_off = std::strcmp(value, "off") == 0;
        if (!file->clc_off && std::strcmp(value, "on") != 0) return "clc is neither on nor off";
        clc = true;
      } else if (std::strcmp(key, "reason") == 0) {
        if (reason || !text(file->reason, sizeof file->reason)) return "reason is no text, or given twice";
        reason = true;
      } else {
        return "it has a key beside schema_version, clc and reason";
      }
    }
    if (!version || !clc) return "schema_version or clc is missing";
    space();
    return at_ == end_ ? nullptr : "something stands behind the object";
  }

 private:
  void space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }

  // Whether a number goes on.
  bool digit() const { return at_ != end_ && *at_ != '\0' && std::strchr("0123456789.eE+-", *at_) != nullptr; }

  bool take(char wanted) {
    space();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }

  // A JSON text, cut to what `out` holds.
  bool text(char* out, std::size_t size) {
    std::size_t used = 0;
    if (!take('"')) return false;
    while (at_ != end_ && *at_ != '"') {
      char each = *at_++;
      if (static_cast<unsigned char>(each) < 0x20) return false;
      if (each == '\\' && !escape(&each)) return false;
      if (used + 1 < size) out[used++] = each;
    }
    out[used] = '\0';
    return take('"');
  }

  // What stands behind a backslash; a letter beyond ASCII becomes a question mark.
  bool escape(char* out) {
    static const char names[] = "\"\\/bfnrt";
    static const char values[] = "\"\\/\b\f\n\r\t";
    if (at_ == end_) return false;
    const char name = *at_++;
    if (name == 'u') return code_point(out);
    const char* found = name == '\0' ? nullptr : std::strchr(names, name);
    if (found == nullptr) return false;
    *out = values[found - names];
    return true;
  }

  bool code_point(char* out) {
    unsigned value = 0;
    for (int i = 0; i < 4; ++i) {
      static const char hex[] = "0123456789abcdef0123456789ABCDEF";
      const char* found = at_ == end_ || *at_ == '\0' ? nullptr : std::strchr(hex, *at_);
      if (found == nullptr) return false;
      value = 16 * value + static_cast<unsigned>((found - hex) % 16);
      ++at_;
    }
    *out = value > 0 && value < 0x80 ? static_cast<char>(value) : '?';
    return true;
  }

  const char* at_;
  const char* end_;
};

// The file above the folder of images.
inline Status read_runtime_file(const char* image_folder, RuntimeFile* file) {
  static const std::size_t kLimit = 1 << 16;
  *file = RuntimeFile{};
  char path[4096];
  const int length = std::snprintf(path, sizeof path, "%s/../runtime.json", image_folder);
  if (length < 0 || length >= static_cast<int>(sizeof path)) {
    return fail(Status::invalid_argument, "the folder of images has a name that is too long");
  }
  std::FILE* opened = std::fopen(path, "rb");
  if (opened == nullptr) {
    if (errno == ENOENT || errno == ENOTDIR) return Status::ok;
    return fail(Status::bad_runtime_file, "%s cannot be read: %s", path, std::strerror(errno));
  }
  char* content = new (std::nothrow) char[kLimit + 1];
  const std::size_t size = content == nullptr ? 0 : std::fread(content, 1, kLimit + 1, opened);
  const bool failed = std::ferror(opened) != 0;
  (void)std::fclose(opened);
  const char* why = nullptr;
  if (content == nullptr) {
    why = "there is no host memory for it";
  } else if (failed) {
    why = "it cannot be read";
  } else if (size > kLimit) {
    why = "it is too long";
  } else {
    why = RuntimeReader(content, content + size).read(file);
  }
  delete[] content;
  if (why == nullptr) return Status::ok;
  return fail(Status::bad_runtime_file, "%s does not say what is switched off: %s", path, why);
}

}  // namespace
