"""What transformers 5 does with code and checkpoints that switch heads off as transformers 4 did.

Neither torch nor transformers is imported: what is said of them is compared with the installed
ones by a test.
"""

from headlab.doctor.advice import ADVICE as ADVICE
from headlab.doctor.advice import Advice as Advice
from headlab.doctor.examination import DEFAULT_MAX_FILES as DEFAULT_MAX_FILES
from headlab.doctor.examination import Examination as Examination
from headlab.doctor.examination import Finding as Finding
from headlab.doctor.examination import UnreadFile as UnreadFile
from headlab.doctor.examination import examine as examine
