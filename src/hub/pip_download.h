/* hub/pip_download.h - downloading a wheel from PyPI by running pip.
 *
 * pip already has the machine's package index, proxies and certificates configured. It is run as
 * `python3 -m pip download`, else `pip3`, else `pip`, without a shell, and downloads only finished
 * wheels: nothing is built, installed or imported. Its output goes to FOLDER/pip.log.
 *
 * Thread: the caller's; blocks until pip ends.
 */
#ifndef HUB_PIP_DOWNLOAD_H
#define HUB_PIP_DOWNLOAD_H

#include "base/status.h"

struct progress;

/* Download the wheel of PACKAGE==VERSION into `folder`, which exists. `progress` has begun and gets
 * the size of the folder. ST_MISSING: pip is not installed; ST_IO: the disk is full;
 * ST_UNAVAILABLE: pip failed, with its message in `err`. */
enum status pip_download(const char *package, const char *version, const char *folder,
                         struct progress *progress, struct err *err);

#endif
