// softmax_uneven: launches the kernels of this bundle. C and C++; needs the CUDA driver API.
//
//   softmax_uneven_launcher* launcher;
//   softmax_uneven_get("build", &launcher);                        // once per device; loads build/<kernel>.<target>.cubin
//   softmax_uneven_arguments arguments = softmax_uneven_defaults();    // the problem's own values
//   softmax_uneven_buffers buffers = { ... };                      // device addresses
//   softmax_uneven_run(launcher, &arguments, &buffers, NULL, NULL, 0, stream);
//
// Every call returns a status and none throws. Calls on one launcher may come from several threads. A CUDA context must
// be current, the same one as when the launcher was made. A run allocates nothing and waits for nothing, so that it can
// be captured into a CUDA graph; the arguments and addresses are those of the capture.
#ifndef SOFTMAX_UNEVEN_H
#define SOFTMAX_UNEVEN_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum softmax_uneven_status {
  SOFTMAX_UNEVEN_OK = 0,
  SOFTMAX_UNEVEN_INVALID_ARGUMENT = 1,     // an argument or a pointer that no kernel can take
  SOFTMAX_UNEVEN_NO_CONTEXT = 2,           // no CUDA context is current on this thread
  SOFTMAX_UNEVEN_IMAGE_MISSING = 3,        // a cubin that this device needs is not in the folder
  SOFTMAX_UNEVEN_NO_RUNG = 4,              // no entry of the ladder runs here with these arguments
  SOFTMAX_UNEVEN_RUNG_UNAVAILABLE = 5,     // the rung that was asked for does not run here with these arguments
  SOFTMAX_UNEVEN_WORKSPACE_TOO_SMALL = 6,  // see softmax_uneven_workspace_bytes
  SOFTMAX_UNEVEN_OUT_OF_MEMORY = 7,        // host memory
  SOFTMAX_UNEVEN_DRIVER_ERROR = 8,         // the CUDA driver refused a call
  SOFTMAX_UNEVEN_BAD_RUNTIME_FILE = 9      // runtime.json is there and does not say what is switched off
} softmax_uneven_status;

// The run-time arguments. Extents and strides count elements.
typedef struct softmax_uneven_arguments {
  int64_t rows;  // at least 0
  int64_t cols;  // at least 0
  int64_t row_stride;  // at least 1
  int64_t out_stride;  // at least 1
  float eps;
} softmax_uneven_arguments;

// Device addresses. None may be null unless there is nothing to launch; one whose extent along K is 0 is not read, so
// any address that is aligned to 16 will do.
typedef struct softmax_uneven_buffers {
  const void* X;  // bfloat16, read
  void* Y;  // bfloat16, written
} softmax_uneven_buffers;

typedef struct softmax_uneven_options {
  int sm_budget;     // SMs that the launch may fill; 0: all
  const char* rung;  // a rung of the ladder by name; null: the first that runs
} softmax_uneven_options;

typedef struct softmax_uneven_launcher softmax_uneven_launcher;

// The problem's own arguments.
softmax_uneven_arguments softmax_uneven_defaults(void);

// A launcher for the current context, with the images of `image_folder`. The caller destroys it. What runtime.json in
// the folder above switches off on this machine is no rung of the ladder; see launcher/runtime_file.h.
softmax_uneven_status softmax_uneven_create(const char* image_folder, softmax_uneven_launcher** launcher);
void softmax_uneven_destroy(softmax_uneven_launcher* launcher);

// The same, made once per context and shared by every caller of the process; never destroyed.
softmax_uneven_status softmax_uneven_get(const char* image_folder, softmax_uneven_launcher** launcher);

// Launches on `stream`. The workspace is device memory, aligned to 256, of softmax_uneven_workspace_bytes bytes, which no
// other launch uses at the same time; null where that is 0. `options` may be null. Extents of 0 launch nothing.
softmax_uneven_status softmax_uneven_run(const softmax_uneven_launcher* launcher, const softmax_uneven_arguments* arguments,
    const softmax_uneven_buffers* buffers, const softmax_uneven_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream);

// The rung that softmax_uneven_run takes for the same arguments, and the workspace it needs.
softmax_uneven_status softmax_uneven_pick(const softmax_uneven_launcher* launcher, const softmax_uneven_arguments* arguments,
    const softmax_uneven_buffers* buffers, const softmax_uneven_options* options, const char** rung);
softmax_uneven_status softmax_uneven_workspace_bytes(const softmax_uneven_launcher* launcher, const softmax_uneven_arguments* arguments,
    const softmax_uneven_buffers* buffers, const softmax_uneven_options* options, size_t* bytes);

// One line about what softmax_uneven_run does for the same arguments: the rung, its kernels with schedule, cluster,
// image and residency, and why each rung before it does not run. Cut to `text_bytes`.
softmax_uneven_status softmax_uneven_describe(const softmax_uneven_launcher* launcher, const softmax_uneven_arguments* arguments,
    const softmax_uneven_buffers* buffers, const softmax_uneven_options* options, char* text, size_t text_bytes);

// Once for each new workspace, before its first run: zeroes what the kernels expect zero and leave zero.
softmax_uneven_status softmax_uneven_prepare_workspace(const softmax_uneven_launcher* launcher, const softmax_uneven_arguments* arguments,
    const softmax_uneven_buffers* buffers, const softmax_uneven_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream);

// Clusters of a kernel that this device holds at once; 0 where no image of it loads or not even one fits.
softmax_uneven_status softmax_uneven_residency(const softmax_uneven_launcher* launcher, const char* kernel,
    int* max_active_clusters);

// The ladder, best first.
int softmax_uneven_rung_count(void);
const char* softmax_uneven_rung(int index);

const char* softmax_uneven_status_name(softmax_uneven_status status);
const char* softmax_uneven_last_message(void);  // of the calling thread's last call that failed

#ifdef __cplusplus
}
#endif

#endif  // SOFTMAX_UNEVEN_H
